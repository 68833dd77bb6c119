package twinlog.interop;

import java.util.Map;

/** One object that the Python worker drives. Arguments are text, answers are JSON, so that little crosses JPype. */
public interface Handle {
    String call(String method, Map<String, String> options) throws Exception;
}
