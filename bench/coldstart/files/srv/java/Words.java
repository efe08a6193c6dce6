import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Counts words; compiled as it is started. Generics, lambdas, records, streams. */
public final class Words {
    private static final Pattern BLANK = Pattern.compile("\\s+");

    record Count(String word, long times) {
    }

    static Stream<Count> count(Stream<String> lines) {
        Map<String, Long> times = lines.flatMap(BLANK::splitAsStream)
                .filter(word -> !word.isEmpty())
                .collect(Collectors.groupingBy(word -> word, Collectors.counting()));
        return times.entrySet().stream()
                .map(entry -> new Count(entry.getKey(), entry.getValue()))
                .sorted(Comparator.comparingLong(Count::times).reversed().thenComparing(Count::word));
    }

    public static void main(String[] arguments) throws Exception {
        long start = System.nanoTime();
        try (Stream<String> lines = Files.lines(Path.of(arguments[0]))) {
            count(lines).limit(10).forEach(System.out::println);
        }
        System.out.println(Duration.ofNanos(System.nanoTime() - start));
    }
}
