package twinlog.interop;

import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * RocketMQ's SQL92 filter: one line of answers for many expressions, each asked about many messages.
 *
 * <p>Expressions come as `expressions`, joined by 0x03; the messages' properties, as RocketMQ joins them, as `messages`, joined by
 * 0x03. For each expression one letter a message: T true, F false, N null, E it raised; or one X when it does not compile.
 */
public final class SqlFilters implements Handle {
    public SqlFilters(Map<String, String> options) {}

    @Override
    public String call(String method, Map<String, String> options) throws Exception {
        switch (method) {
            case "verdicts":
                return verdicts(options.get("expressions").split("\u0003", -1), options.get("messages").split("\u0003", -1));
            case "bits":
                int[] bits = BloomFilter.createByFn(20, 32).generate(options.get("text")).getBitPos();
                return java.util.Arrays.toString(bits);
            default:
                throw new IllegalArgumentException(method);
        }
    }

    private static String verdicts(String[] expressions, String[] messages) {
        StringBuilder answer = new StringBuilder("[");
        for (String text : expressions) {
            answer.append(answer.length() > 1 ? "," : "").append('"').append(verdicts(text, messages)).append('"');
        }
        return answer.append(']').toString();
    }

    private static String verdicts(String text, String[] messages) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (MQFilterException e) {
            return "X";
        }
        StringBuilder verdicts = new StringBuilder();
        for (String message : messages) {
            verdicts.append(verdict(expression, message));
        }
        return verdicts.toString();
    }

    private static char verdict(Expression expression, String message) {
        Map<String, String> properties = new HashMap<>(MessageDecoder.string2messageProperties(message));
        Object result;
        try {
            result = expression.evaluate(new MessageEvaluationContext(properties));
        } catch (Throwable e) {
            return 'E';
        }
        return result == null ? 'N' : Boolean.TRUE.equals(result) ? 'T' : 'F';
    }
}
