package twinlog.interop;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** RocketMQ's mqadmin, in the JVM that runs already: arguments in, what it prints out. */
public final class Tool implements Handle {
    public Tool(Map<String, String> options) {
        System.setProperty("rocketmq.namesrv.addr", options.get("namesrv"));
    }

    @Override
    public String call(String method, Map<String, String> options) throws Exception {
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        try {
            MQAdminStartup.main0(options.get("arguments").split(" "), null);
        } finally {
            System.setOut(before);
        }
        return Json.quote(new String(printed.toByteArray(), StandardCharsets.UTF_8));
    }
}
