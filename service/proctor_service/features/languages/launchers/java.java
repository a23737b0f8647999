// Calls the main method of the tests; descriptor 3 holds the word that proves the return from it.
// In a package, since a class of the program named `String` would come before Java's in its own package.
package PROCTOR_NAME;

import java.nio.file.Files;
import java.nio.file.Path;

public class PROCTOR_NAME {
    public static void main(String[] arguments) throws Throwable {
        Path place = Path.of("/proc/self/fd/3");
        byte[] word = Files.readAllBytes(place);
        Files.write(place, new byte[0]);
        Class<?> tests = Class.forName("PROCTOR_MAIN");
        var main = tests.getDeclaredMethod("main", String[].class);
        main.setAccessible(true);
        try {
            main.invoke(null, (Object) new String[0]);
        } catch (java.lang.reflect.InvocationTargetException thrown) {
            throw thrown.getCause();
        }
        Files.writeString(place, new String(word) + "\n");
    }
}
