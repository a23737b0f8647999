    /** Load the compiled classes, which the program could replace in their files later; then end if the tests mean a
     * class of a library, and the program has one of its name. */
    private static void checkClasses() throws Exception {
        Path folder = Path.of("PROCTOR_FOLDER");
        java.util.List<Path> found;
        try (var paths = Files.walk(folder)) {
            found = paths.filter(path -> path.toString().endsWith(".class")).collect(java.util.stream.Collectors.toList());
        }
        for (Path path : found) {
            String name = folder.relativize(path).toString().replace('/', '.');
            exists(name.substring(0, name.length() - ".class".length()));
        }
        for (String name : new String[] {PROCTOR_SHADOWS}) {
            for (String library : new String[] {PROCTOR_LIBRARIES}) {
                if (exists(library + "." + name) && exists("PROCTOR_PACKAGE" + name)) {
                    System.err.println("the program has a class " + name + ", and the tests use that of " + library);
                    Runtime.getRuntime().halt(1);
                }
            }
        }
    }

    private static boolean exists(String name) {
        try {
            return Class.forName(name, false, PROCTOR_NAME.class.getClassLoader()) != null;
        } catch (ClassNotFoundException | LinkageError missing) {
            return false;
        }
    }
