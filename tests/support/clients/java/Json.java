package twinlog.interop;

import java.util.Map;

/** Writes JSON without a library, because RocketMQ's own differs from release to release. */
final class Json {
    private Json() {
    }

    static String quote(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder out = new StringBuilder(text.length() + 2).append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c)) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }

    static String object(Map<String, String> map) {
        StringBuilder out = new StringBuilder("{");
        for (Map.Entry<String, String> entry : map.entrySet()) {
            out.append(out.length() == 1 ? "" : ",").append(quote(entry.getKey())).append(':').append(quote(entry.getValue()));
        }
        return out.append('}').toString();
    }
}
