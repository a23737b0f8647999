import scala.collection.mutable
import scala.io.StdIn

sealed trait Shape
case class Circle(radius: Double) extends Shape
case object Empty extends Shape

abstract class Named[T](val name: T) { def shown: String = s"<$name>" }

object Main {
  case class Point(x: Int, y: Long)

  implicit class Words(val words: List[String]) { def letters: Int = words.map(_.length).sum }

  def area(shape: Shape): Double = shape match {
    case Circle(radius) if radius > 0 => math.Pi * radius * radius
    case _ => 0.0
  }

  @annotation.tailrec
  def gcd(a: Long, b: Long): Long = if (b == 0) a else gcd(b, a % b)

  def main(args: Array[String]): Unit = {
    val lines = Iterator.continually(StdIn.readLine()).takeWhile(_ != null).toList
    val counts = mutable.Map[String, Int]().withDefaultValue(0)
    for (word <- "a b a c".split(" ")) counts(word) += 1
    val squares = (1 to 10).map(x => x * x).filter(_ % 2 == 0).sorted.reverse.mkString(",")
    val sorted = Vector(3, 1, 2).sortBy(-_).zipWithIndex.groupBy(_._1 % 2).toSeq.sortBy(_._1)
    println(s"$squares ${counts.toList.sortBy(_._1)} $sorted ${lines.letters}")
    println(f"${area(Circle(1))}%.2f" + Point(1, gcd(12, 18)) + BigInt(2).pow(70) + Array(1, 2).sum)
    val heap = mutable.PriorityQueue((1, 2), (3, 4))(Ordering.by(_._1))
    var seen = Set(1, 2)
    seen += heap.dequeue()._1
    val found = for { x <- Option(3); y <- seen.find(_ > 2) } yield x + y
    val all = (mutable.ArrayBuffer(1), mutable.Queue(1), mutable.HashSet(1), Array.ofDim[Int](2, 3).length)
    try println(List.empty[Int].head)
    catch { case error: NoSuchElementException => println(s"$found $all ${new Named("x") {}.shown}") }
    println(seen.foldLeft(0)(_ + _) + (1 until 5 by 2).map(_.toLong).max + "12".toInt)
  }
}
