// Calls the main method of the tests; descriptor 3 holds the word that proves the return from it.
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;

public class PROCTOR_NAME {
    public static void main(String[] arguments) throws Throwable {
        Path place = Path.of("/proc/self/fd/3");
        byte[] word = Files.readAllBytes(place);
        Files.write(place, new byte[0]);
        loadAll();
        for (String name : new String[] {PROCTOR_SHADOWS}) {
            for (String library : new String[] {PROCTOR_LIBRARIES}) {
                if (exists(library + "." + name) && exists("PROCTOR_PACKAGE" + name)) {
                    System.err.println("the program has a class " + name + ", and the tests use that of " + library);
                    Runtime.getRuntime().halt(1);
                }
            }
        }
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

    /** Load the compiled classes, which the program could replace in their files later. */
    private static void loadAll() throws Exception {
        Path folder = Path.of(".");
        List<Path> found;
        try (var paths = Files.walk(folder)) {
            found = paths.filter(path -> path.toString().endsWith(".class")).collect(Collectors.toList());
        }
        for (Path path : found) {
            String name = folder.relativize(path).toString().replace('/', '.');
            exists(name.substring(0, name.length() - ".class".length()));
        }
    }

    private static boolean exists(String name) {
        try {
            return Class.forName(name, false, PROCTOR_NAME.class.getClassLoader()) != null;
        } catch (ClassNotFoundException | LinkageError missing) {
            return false;
        }
    }
}
