// Calls the main method of the tests; descriptor 3 holds the word that proves the return from it.
package PROCTOR_NAME

import java.nio.file.{Files, Paths}

object PROCTOR_NAME {
  def main(arguments: Array[String]): Unit = {
    val place = Paths.get("/proc/self/fd/3")
    val word = Files.readAllBytes(place)
    Files.write(place, Array[Byte]())
    val main = Class.forName("PROCTOR_MAIN").getMethod("main", classOf[Array[String]])
    try main.invoke(null, Array[String]())
    catch { case thrown: java.lang.reflect.InvocationTargetException => throw thrown.getCause }
    Files.write(place, word :+ '\n'.toByte)
  }
}
