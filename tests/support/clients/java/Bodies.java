package twinlog.interop;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;

/** Message bodies that Python can recompute: SHA-256 of "seed:index:block", one block after the other. */
final class Bodies {
    private Bodies() {
    }

    static byte[] body(String seed, int index, int size) throws Exception {
        ByteBuffer out = ByteBuffer.allocate(size);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (int block = 0; out.hasRemaining(); block++) {
            byte[] piece = digest.digest((seed + ":" + index + ":" + block).getBytes(StandardCharsets.UTF_8));
            out.put(piece, 0, Math.min(piece.length, out.remaining()));
        }
        return out.array();
    }
}
