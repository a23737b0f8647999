import java.util.PriorityQueue

data class Point(val x: Int, val y: Long)

enum class Kind { ROUND, SQUARE }

sealed class Shape {
    data class Circle(val radius: Double) : Shape()
    object Empty : Shape()
}

interface Named { val name: String get() = "named" }

class Counter<T : Comparable<T>> : Named {
    private val counts = mutableMapOf<T, Int>()
    operator fun plusAssign(item: T) { counts[item] = (counts[item] ?: 0) + 1 }
    fun best(): Pair<T, Int>? = counts.entries.sortedByDescending { it.value }.map { it.key to it.value }.firstOrNull()
}

fun String.shout(times: Int = 1): String = buildString { repeat(times) { append(this@shout.toUpperCase()) } }

fun area(shape: Shape): Double = when (shape) {
    is Shape.Circle -> Math.PI * shape.radius * shape.radius
    Shape.Empty -> 0.0
}

fun gcd(a: Long, b: Long): Long = if (b == 0L) a else gcd(b, a % b)

fun main() {
    val words = generateSequence(::readLine).flatMap { it.split(" ").asSequence() }.toList()
    val counter = Counter<String>()
    for (word in words + listOf("a", "b", "a")) counter += word
    val numbers = (1..10).map { it * it }.filter { it % 2 == 0 }.sorted().reversed()
    val grid = Array(3) { IntArray(4) { i -> i } }
    val heap = PriorityQueue<Point>(compareBy { it.x })
    heap.add(Point(1, gcd(12, 18)))
    val (x, y) = heap.poll()
    val groups = numbers.groupBy { it % 3 }.mapValues { (_, each) -> each.sum() }
    try {
        println(words.first())
    } catch (error: NoSuchElementException) {
        println("${counter.best()} $x $y $groups ${Kind.values().joinToString()} ${counter.name}")
    }
    println(String.format("%.2f", area(Shape.Circle(1.0))) + "ab".shout(2) + grid[1].max() + (10 downTo 1 step 3).toList())
    println(setOf(1, 2).union(setOf(3)).maxBy { -it }.let { it ?: 0 } + ArrayDequeLike().size)
}

class ArrayDequeLike { val size by lazy { mutableListOf(1, 2).apply { add(3) }.zip(listOf('a', 'b')).size } }
