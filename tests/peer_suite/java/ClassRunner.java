package twinlog.peer;

import com.alibaba.fastjson.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.runner.JUnitCore;
import org.junit.runner.Result;
import org.junit.runner.notification.Failure;

/** Runs the test classes whose names come on stdin, one after the other; one line of JSON for each on stdout. */
public final class ClassRunner {
    private static final int TRACE_MAX = 2_000;

    private ClassRunner() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream results = System.out;
        System.setOut(System.err); // What the tests print is their log.
        BufferedReader names = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String name = names.readLine(); name != null; name = names.readLine()) {
            System.err.println("== " + name);
            results.println(JSON.toJSONString(run(name)));
            results.flush();
        }
        System.exit(0); // Clients leave threads behind.
    }

    private static Map<String, Object> run(String name) throws ClassNotFoundException {
        Result result = new JUnitCore().run(Class.forName(name));
        List<Map<String, String>> failures = new ArrayList<>();
        for (Failure failure : result.getFailures()) {
            System.err.println(failure.getTestHeader() + "\n" + failure.getTrace());
            Map<String, String> row = new LinkedHashMap<>();
            row.put("test", failure.getTestHeader());
            row.put("trace", failure.getTrace().substring(0, Math.min(TRACE_MAX, failure.getTrace().length())));
            failures.add(row);
        }
        Map<String, Object> report = new LinkedHashMap<>();
        report.put("tests", result.getRunCount());
        report.put("failures", failures);
        report.put("seconds", Math.round(result.getRunTime() / 100.0) / 10.0);
        return report;
    }
}
