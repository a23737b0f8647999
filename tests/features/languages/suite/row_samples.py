"""Programs in the languages that are rows of `settings/languages.toml`.

`adds`: prints the sum of two numbers of its input. `crashes`: ends with a failure. `broken`: neither compiles nor
runs. `spins`: never ends. `hoards`: takes memory without an end. `peeks`: prints the first line of the file
PEEKED, or `hidden`. `swarms`: starts processes or threads without an end; "" where the language cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

PEEKED = "/the/peeked/file"


@dataclass(frozen=True)
class Samples:
    """Programs of one language."""

    adds: str
    crashes: str
    broken: str
    spins: str
    hoards: str
    peeks: str
    swarms: str = ""


def _ada(body: str, declared: str = "", withs: str = "with Ada.Text_IO; use Ada.Text_IO;") -> str:
    return f"{withs}\nprocedure Main is\n   {declared}\nbegin\n   {body}\nend Main;\n"


def _pascal(body: str, declared: str = "") -> str:
    return f"program Main;\n{declared}\nbegin\n  {body}\nend.\n"


def _fortran(body: str, declared: str = "implicit none") -> str:
    return f"program main\n  {declared}\n  {body}\nend program main\n"


def _verilog(body: str, declared: str = "") -> str:
    return f"module main;\n  {declared}\n  initial begin\n    {body}\n  end\nendmodule\n"


_D_HEAD = "import std.stdio, std.file, std.string;\nimport core.sys.posix.unistd;\n"
_FORTRAN_FORK = """implicit none
  interface
    function c_fork() bind(C, name="fork") result(pid)
      use iso_c_binding
      integer(c_int) :: pid
    end function
  end interface
  integer :: pid"""

SAMPLES = {
    "ada": Samples(
        _ada(
            "Get (A); Get (B); Put_Line (Integer'Image (A + B));",
            "A, B : Integer;",
            "with Ada.Text_IO; use Ada.Text_IO;\nwith Ada.Integer_Text_IO; use Ada.Integer_Text_IO;",
        ),
        _ada('raise Constraint_Error with "no";'),
        _ada("Put_Line (Undeclared);"),
        _ada("loop I := I + 1; end loop;", "type Wide is mod 2 ** 32; I : Wide := 0; pragma Volatile (I);"),
        _ada(
            "loop P := new Block'(others => 7); Total := Total + P (9); end loop;",
            "type Block is array (1 .. 1_000_000) of Integer; type Access_Block is access Block; "
            "P : Access_Block; Total : Long_Long_Integer := 0;",
        ).replace("P (9)", "Long_Long_Integer (P (9))"),
        _ada(
            f'Open (F, In_File, "{PEEKED}"); Put_Line (Get_Line (F));\n'
            'exception when others => Put_Line ("hidden");',
            "F : File_Type;",
        ),
        _ada(
            "loop T := new Worker; end loop;",
            "task type Worker; type Access_Worker is access Worker; T : Access_Worker;\n"
            "task body Worker is begin loop delay 1.0; end loop; end Worker;",
        ),
    ),
    "clojure": Samples(
        "(println (+ (read) (read)))",
        '(throw (Exception. "no"))',
        "(println (+ 1 2)",
        "(loop [] (recur))",
        "(loop [all []] (recur (conj all (byte-array 1000000 (byte 7)))))",
        f'(println (try (slurp "{PEEKED}") (catch Exception e "hidden")))',
        "(while true (.start (Thread. (fn [] (Thread/sleep 100000)))))",
    ),
    "common_lisp": Samples(
        '(format t "~a~%" (+ (read) (read)))',
        '(error "no")',
        "(print (+ 1 2)",
        "(loop)",
        "(let ((all nil)) (loop (push (make-array 100000 :initial-element 7) all)))",
        f'(with-open-file (f "{PEEKED}" :if-does-not-exist nil) (format t "~a~%" (if f (read-line f) "hidden")))',
        '(loop (sb-thread:make-thread (lambda () (sleep 1000))))',
    ),
    "d": Samples(
        "import std.stdio;\nvoid main() { int a, b; readf(\" %d %d\", a, b); writeln(a + b); }",
        'void main() { throw new Exception("no"); }',
        "void main() { int x = undeclared; }",
        "void main() { for (uint i = 0;; i++) { if (i == 7) i = 8; } }",
        "void main() { int[][] all; for (;;) { auto b = new int[](1_000_000); b[] = 7; all ~= b; } }",
        f'{_D_HEAD}void main() {{ try {{ writeln(readText("{PEEKED}").strip); }} '
        'catch (Exception e) { writeln("hidden"); } }',
        f"{_D_HEAD}void main() {{ for (;;) fork(); }}",
    ),
    "d_ut": Samples(
        "int twice(int n) { return 2 * n; }\nunittest { assert(twice(2) == 4); }\n"
        "import std.stdio;\nvoid main() { int a, b; readf(\" %d %d\", a, b); writeln(a + b); }",
        "int twice(int n) { return n; }\nunittest { assert(twice(2) == 4); }\nvoid main() {}",
        "unittest { assert(undeclared(2) == 4); }\nvoid main() {}",
        "unittest { for (uint i = 0;; i++) { if (i == 7) i = 8; } }\nvoid main() {}",
        "unittest { int[][] all; for (;;) { auto b = new int[](1_000_000); b[] = 7; all ~= b; } }\nvoid main() {}",
        f'{_D_HEAD}unittest {{ try {{ writeln(readText("{PEEKED}").strip); }} '
        'catch (Exception e) { writeln("hidden"); } }\nvoid main() {}',
        f"{_D_HEAD}unittest {{ for (;;) fork(); }}\nvoid main() {{}}",
    ),
    "elixir": Samples(
        "[a, b] = IO.read(:stdio, :line) |> String.split() |> Enum.map(&String.to_integer/1)\nIO.puts(a + b)",
        'raise "no"',
        "IO.puts(1 +",
        "spin = fn spin -> spin.(spin) end\nspin.(spin)",
        "hoard = fn hoard, all -> hoard.(hoard, [:binary.copy(<<7>>, 1_000_000) | all]) end\nhoard.(hoard, [])",
        f'case File.read("{PEEKED}") do\n  {{:ok, text}} -> IO.puts(text)\n  _ -> IO.puts("hidden")\nend',
        'Stream.repeatedly(fn -> Port.open({:spawn, "sleep 1000"}, []) end) |> Stream.run()',
    ),
    "fortran": Samples(
        _fortran("read *, a, b\n  print '(i0)', a + b", "implicit none\n  integer :: a, b"),
        _fortran("error stop 3"),
        _fortran("x = 3\n  print *, x"),
        _fortran("do\n    i = i + 1\n    if (i > 1000) i = 0\n  end do", "implicit none\n  integer, volatile :: i = 0"),
        _fortran(
            "allocate(head)\n  do\n    allocate(head%next)\n    head%next%block = 7\n    head => head%next\n  end do",
            "implicit none\n  type node\n    integer :: block(1000000)\n    type(node), pointer :: next\n"
            "  end type\n  type(node), pointer :: head",
        ),
        _fortran(
            f"open(unit=9, file='{PEEKED}', status='old', action='read', iostat=state)\n"
            "  line = 'hidden'\n  if (state == 0) read(9, '(a)') line\n  print '(a)', trim(line)",
            "implicit none\n  integer :: state\n  character(200) :: line",
        ),
        _fortran("do\n    pid = c_fork()\n  end do", _FORTRAN_FORK),
    ),
    "haskell": Samples(
        'main :: IO ()\nmain = interact $ \\s -> show (sum (map read (words s) :: [Int])) ++ "\\n"',
        'main :: IO ()\nmain = error "no"',
        "main :: IO ()\nmain = print undeclared",
        "main :: IO ()\nmain = go 0 where go :: Int -> IO ()\n                  go n = if n == -1 then print n else go (abs (n + 1))",
        "main :: IO ()\nmain = let all' = [1 ..] :: [Integer] in print (sum all') >> print (last all')",
        "import Control.Exception\nmain :: IO ()\nmain = do\n"
        f'  found <- try (readFile "{PEEKED}") :: IO (Either IOException String)\n'
        '  putStrLn (either (const "hidden") id found)',
        "import System.Posix.Process\nimport Control.Monad\nmain :: IO ()\nmain = forever $ forkProcess main",
    ),
    "nim": Samples(
        "import std/[strutils, sequtils]\nlet n = stdin.readAll.splitWhitespace.map(parseInt)\necho n[0] + n[1]",
        'raise newException(ValueError, "no")',
        "echo undeclared",
        "var i = 0\nwhile true:\n  i = (i + 1) mod 1000",
        "var all: seq[seq[int]]\nwhile true:\n  all.add(newSeqWith(100_000, 7))".replace(
            "var all", "import std/sequtils\nvar all"
        ),
        f'try:\n  echo readFile("{PEEKED}")\nexcept IOError:\n  echo "hidden"',
        "import std/posix\nwhile true:\n  discard fork()",
    ),
    "ocaml": Samples(
        'let () = Scanf.scanf " %d %d" (fun a b -> Printf.printf "%d\\n" (a + b))',
        'let () = failwith "no"',
        "let () = print_int undeclared",
        "let () = while true do () done",
        "let () = let all = ref [] in while true do all := Array.make 1_000_000 7 :: !all done",
        f'let () = match open_in "{PEEKED}" with\n  | file -> print_endline (input_line file)\n'
        '  | exception Sys_error _ -> print_endline "hidden"',
        "let () = while true do try ignore (Unix.fork ()) with Unix.Unix_error _ -> () done",
    ),
    "octave": Samples(
        "n = fscanf(stdin, '%d');\nprintf('%d\\n', n(1) + n(2));",
        "error('no');",
        "x = (1 + ;",
        "while true\nend",
        "all = {};\nwhile true\n  all{end + 1} = 7 * ones(1000, 1000);\nend",
        f"file = fopen('{PEEKED}');\nif file < 0\n  disp('hidden');\nelse\n  disp(fgetl(file));\nend",
        "while true\n  system('sleep 1000', false, 'async');\nend",
    ),
    "pascal": Samples(
        _pascal("ReadLn(a, b); WriteLn(a + b);", "var a, b: Integer;"),
        _pascal("Halt(3);"),
        _pascal("WriteLn(undeclared);"),
        _pascal("while True do i := (i + 1) mod 1000;", "var i: Integer;"),
        _pascal("while True do begin GetMem(p, 1000000); FillChar(p^, 1000000, 7); end;", "var p: Pointer;"),
        _pascal(
            f"Assign(f, '{PEEKED}'); {{$I-}} Reset(f); {{$I+}}\n"
            "  if IOResult <> 0 then WriteLn('hidden') else begin ReadLn(f, s); WriteLn(s); end;",
            "var f: Text; s: String;",
        ),
        _pascal("while True do fpFork;", "uses BaseUnix;"),
    ),
    "racket": Samples(
        "#lang racket\n(displayln (+ (read) (read)))",
        '#lang racket\n(error "no")',
        "#lang racket\n(displayln (+ 1 2)",
        "#lang racket\n(let loop () (loop))",
        "#lang racket\n(let loop ([all '()]) (loop (cons (make-vector 100000 7) all)))",
        f'#lang racket\n(displayln (if (file-exists? "{PEEKED}") (file->string "{PEEKED}") "hidden"))',
        '#lang racket\n(let loop () (subprocess #f #f #f "/bin/sleep" "1000") (loop))',
    ),
    "julia": Samples(
        "a, b = parse.(Int, split(readline()))\nprintln(a + b)",
        'error("no")',
        "println(1 +",
        "while true end",
        "all = []\nwhile true push!(all, fill(7, 1_000_000)) end",
        f'println(isfile("{PEEKED}") ? read("{PEEKED}", String) : "hidden")',
        "while true run(`sleep 1000`, wait = false) end",
    ),
    "swift": Samples(
        "let n = readLine()!.split(separator: \" \").map { Int($0)! }\nprint(n[0] + n[1])",
        'fatalError("no")',
        "print(undeclared)",
        "var i = 0\nwhile true { i = (i + 1) % 1000 }",
        "var all: [[Int]] = []\nwhile true { all.append([Int](repeating: 7, count: 1_000_000)) }",
        f'import Foundation\nprint((try? String(contentsOfFile: "{PEEKED}", encoding: .utf8)) ?? "hidden")',
        'import Foundation\nwhile true { Thread { sleep(1000) }.start() }',
    ),
    "verilog": Samples(
        _verilog(
            'r = $fscanf(32\'h8000_0000, "%d %d", a, b);\n    $display("%0d", a + b);', "integer a, b, r;"
        ),
        _verilog('$fatal(1, "no");'),
        _verilog("x = undeclared + 1;"),
        _verilog("forever i = i + 1;", "integer i = 0;"),
        _verilog(
            "forever begin all.push_back(i); i = i + 1; end", "int all[$];\n  int i = 0;"
        ),
        _verilog(
            f'f = $fopen("{PEEKED}", "r");\n    if (f == 0) $display("hidden");\n'
            '    else begin r = $fgets(line, f); $display("%0s", line); end',
            "integer f, r;\n  reg [8*200:1] line;",
        ),
    ),
}  # fmt: skip
"""By the name of the language."""
