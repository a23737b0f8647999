// Runs the tests of the grader's classes, and reports each of them behind the secret word.
package PROCTOR_NAME;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.engine.JupiterTestEngine;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherConfig;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

public class PROCTOR_NAME implements TestExecutionListener {
    private static final List<String> FILES = List.of(PROCTOR_FILES);
    private final StringBuilder report = new StringBuilder();

    public static void main(String[] arguments) throws Throwable {
        Path place = Path.of("/proc/self/fd/3");
        String word = Files.readString(place);
        Files.write(place, new byte[0]);
        PROCTOR_NAME listener = new PROCTOR_NAME();
        // Nothing of the submission registers engines, listeners or extensions.
        var config = LauncherConfig.builder().enableTestEngineAutoRegistration(false)
            .enableTestExecutionListenerAutoRegistration(false).addTestEngines(new JupiterTestEngine());
        List<DiscoverySelector> selectors = new ArrayList<>();
        for (String name : new String[] {PROCTOR_CLASSES}) selectors.add(DiscoverySelectors.selectClass(name));
        var request = LauncherDiscoveryRequestBuilder.request().selectors(selectors)
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "false").build();
        LauncherFactory.create(config.build()).execute(request, listener);
        System.out.flush();
        Files.writeString(place, word + "\n" + listener.report);
        Runtime.getRuntime().halt(0);
    }

    @Override
    public void executionSkipped(TestIdentifier identifier, String reason) {
        add("skipped", identifier);
    }

    @Override
    public void executionFinished(TestIdentifier identifier, TestExecutionResult result) {
        boolean failed = result.getStatus() != TestExecutionResult.Status.SUCCESSFUL;
        boolean skipped = result.getStatus() == TestExecutionResult.Status.ABORTED && isOfTests(result.getThrowable().get());
        if (failed && result.getThrowable().isPresent()) result.getThrowable().get().printStackTrace();
        if (failed || identifier.isTest()) add(skipped ? "skipped" : failed ? "failed" : "passed", identifier);
    }

    /** Tell whether a class of the grader made the assumption: a test that the submission skips has failed. */
    private static boolean isOfTests(Throwable aborted) {
        for (StackTraceElement frame : aborted.getStackTrace()) {
            String name = frame.getClassName();
            if (!name.startsWith("org.junit.") && !name.startsWith("org.opentest4j."))
                return FILES.contains(frame.getFileName());
        }
        return false;
    }

    private void add(String outcome, TestIdentifier identifier) {
        String name = identifier.getSource().filter(MethodSource.class::isInstance).map(MethodSource.class::cast)
            .map(source -> source.getClassName() + "." + source.getMethodName()).orElse(identifier.getLegacyReportingName());
        synchronized (report) {
            report.append(outcome).append(' ').append(name.replaceAll("\\s", " ")).append('\n');
        }
    }
}
