import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import java.util.function.Function;
import java.util.stream.Collectors;

public class Main {
    interface Shape {
        double area();
    }

    enum Kind { ROUND, SQUARE }

    static abstract class Base<T extends Comparable<T>> implements Shape {
        protected final T name;

        Base(T name) {
            this.name = name;
        }
    }

    static class Circle extends Base<String> {
        private final double radius;

        Circle(double radius) {
            super("circle");
            this.radius = radius;
        }

        @Override
        public double area() {
            return Math.PI * radius * radius;
        }
    }

    static long gcd(long a, long b) {
        return b == 0 ? a : gcd(b, a % b);
    }

    static <K, V> Map<K, List<V>> grouped(List<V> values, Function<V, K> key) {
        Map<K, List<V>> found = new TreeMap<>();
        for (V value : values) {
            found.computeIfAbsent(key.apply(value), k -> new ArrayList<>()).add(value);
        }
        return found;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        String line;
        int lines = 0;
        while ((line = reader.readLine()) != null) {
            StringTokenizer words = new StringTokenizer(line);
            while (words.hasMoreTokens()) {
                lines += words.nextToken().length();
            }
        }
        int[][] grid = new int[3][4];
        for (int i = 0; i < grid.length; i++) {
            Arrays.fill(grid[i], i);
        }
        List<Integer> numbers = new ArrayList<>(Arrays.asList(3, 1, 2));
        Collections.sort(numbers, (a, b) -> Integer.compare(b, a));
        Deque<Integer> queue = new ArrayDeque<>(numbers);
        PriorityQueue<long[]> heap = new PriorityQueue<>((a, b) -> Long.compare(a[0], b[0]));
        heap.add(new long[] {gcd(12, 18), 1L});
        Set<String> seen = new HashSet<>();
        String text = numbers.stream().filter(n -> n > 1).map(String::valueOf).collect(Collectors.joining(","));
        StringBuilder out = new StringBuilder();
        switch (Kind.values()[lines % 2]) {
            case ROUND:
                out.append(String.format("%.2f", new Circle(1).area()));
                break;
            default:
                out.append('x');
        }
        try {
            out.append(queue.pop() + heap.peek()[0] + grid[1][2]).append(seen.add(text));
            Object[] none = new Object[0];
            out.append(none[0]);
        } catch (ArrayIndexOutOfBoundsException | IllegalStateException error) {
            out.append(grouped(numbers, n -> n % 2));
        } finally {
            out.append(new Scanner("1 2").nextInt());
        }
        System.out.println(out);
    }
}
