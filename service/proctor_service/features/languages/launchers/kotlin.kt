// Calls the main function of the tests; descriptor 3 holds the word that proves the return from it.
@file:JvmName("PROCTOR_NAME")

package PROCTOR_NAME

fun main() {
    val place = java.io.File("/proc/self/fd/3")
    val word = place.readBytes()
    place.writeBytes(ByteArray(0))
    val tests = Class.forName("PROCTOR_MAIN")
    val main = tests.methods.filter { it.name == "main" }.sortedBy { it.parameterCount }.first()
    try {
        if (main.parameterCount == 0) main.invoke(null) else main.invoke(null, arrayOf<String>())
    } catch (thrown: java.lang.reflect.InvocationTargetException) {
        throw thrown.targetException
    }
    place.writeBytes(word + '\n'.toByte())
}
