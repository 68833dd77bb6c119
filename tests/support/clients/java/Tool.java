package twinlog.interop;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** RocketMQ's mqadmin, in the JVM that runs already: arguments in, what it prints out. */
public final class Tool implements Handle {
    public Tool(Map<String, String> options) {
        System.setProperty("rocketmq.namesrv.addr", options.get("namesrv"));
    }

    @Override
    public String call(String method, Map<String, String> options) throws Exception {
        switch (method) {
            case "run":
                return Json.quote(run(options.get("arguments")).get("out"));
            case "both":
                return Json.object(run(options.get("arguments")));
            case "commands":
                return Json.object(Startup.commands());
            case "codes":
                return Json.object(codes());
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private static Map<String, String> run(String arguments) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream failed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        System.setErr(new PrintStream(failed, true, "UTF-8"));
        try {
            Startup.forget();
            MQAdminStartup.main0(arguments.split(" "), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        err.write(failed.toByteArray());
        Map<String, String> both = new LinkedHashMap<>();
        both.put("out", new String(printed.toByteArray(), StandardCharsets.UTF_8));
        both.put("err", new String(failed.toByteArray(), StandardCharsets.UTF_8));
        return both;
    }

    /** Every request code that this release defines, by name. */
    private static Map<String, String> codes() throws Exception {
        Class<?> codes;
        try {
            codes = Class.forName("org.apache.rocketmq.common.protocol.RequestCode");
        } catch (ClassNotFoundException e) {
            codes = Class.forName("org.apache.rocketmq.remoting.protocol.RequestCode");
        }
        Map<String, String> found = new LinkedHashMap<>();
        for (Field field : codes.getFields()) {
            found.put(field.getName(), String.valueOf(field.getInt(null)));
        }
        return found;
    }

    /** Reaches the list of sub-commands. Each run adds to it anew, and would find the objects that an earlier one has used up. */
    private static final class Startup extends MQAdminStartup {
        static void forget() throws Exception {
            list().clear();
        }

        static Map<String, String> commands() throws Exception {
            forget();
            MQAdminStartup.initCommand();
            Map<String, String> found = new LinkedHashMap<>();
            for (Object each : list()) {
                SubCommand command = (SubCommand) each;
                found.put(command.commandName(), command.commandDesc());
            }
            return found;
        }

        private static java.util.List<?> list() throws Exception {
            for (String name : new String[] {"subCommandList", "SUB_COMMANDS"}) {
                try {
                    Field field = MQAdminStartup.class.getDeclaredField(name);
                    field.setAccessible(true);
                    return (java.util.List<?>) field.get(null);
                } catch (NoSuchFieldException e) {
                    continue;
                }
            }
            throw new IllegalStateException("MQAdminStartup has no list of sub-commands");
        }
    }
}
