// Calls the Main method of the tests; descriptor 3 holds the word that proves the return from it.
class PROCTOR_NAME {
    static int Main() {
        const string place = "/proc/self/fd/3";
        byte[] word = System.IO.File.ReadAllBytes(place);
        System.IO.File.WriteAllBytes(place, new byte[0]);
        var flags = System.Reflection.BindingFlags.Static | System.Reflection.BindingFlags.Public
            | System.Reflection.BindingFlags.NonPublic;
        var main = System.Type.GetType("PROCTOR_MAIN", true).GetMethod("Main", flags);
        object[] arguments = main.GetParameters().Length == 0 ? null : new object[] { new string[0] };
        object code;
        try {
            code = main.Invoke(null, arguments);
            var task = code as System.Threading.Tasks.Task;
            if (task != null) task.GetAwaiter().GetResult();
            var number = code as System.Threading.Tasks.Task<int>;
            if (number != null) code = number.Result;
        } catch (System.Exception thrown) {
            bool isInvoked = thrown is System.Reflection.TargetInvocationException;
            System.Console.Error.WriteLine(isInvoked ? thrown.InnerException : thrown);
            return 1;
        }
        if (code is int && (int) code != 0) return (int) code;
        System.IO.File.WriteAllText(place, System.Text.Encoding.ASCII.GetString(word) + "\n");
        return 0;
    }
}
