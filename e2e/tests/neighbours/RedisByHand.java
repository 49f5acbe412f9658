import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.params.SetParams;

/**
 * A program whose lock is renewed by a scheduled EXPIRE that does not compare, and that nothing stops.
 *
 * <p>usage: RedisByHand PORT KEY TTL waits for the lock, and prints "held"; releases after a line of standard input, and
 * prints "released"; ends at the end of standard input. From the first grant on the key is extended each third of TTL,
 * in milliseconds, whichever program holds it.
 */
public class RedisByHand {
    private static final String COMPARE_AND_DELETE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]);
        String key = args[1];
        long ttl = Long.parseLong(args[2]);
        String value = UUID.randomUUID().toString();
        try (Jedis server = new Jedis("127.0.0.1", port)) {
            while (server.set(key, value, SetParams.setParams().nx().px(ttl)) == null) {
                Thread.sleep(20);
            }
            var renewals = Executors.newSingleThreadScheduledExecutor(work -> {
                Thread thread = new Thread(work);
                thread.setDaemon(true);
                return thread;
            });
            Jedis renewing = new Jedis("127.0.0.1", port);
            Runnable renew = () -> renewing.expire(key, ttl / 1000);
            renewals.scheduleAtFixedRate(renew, ttl / 3, ttl / 3, TimeUnit.MILLISECONDS);
            System.out.println("held");
            while (System.in.read() != '\n') {}
            server.eval(COMPARE_AND_DELETE, java.util.List.of(key), java.util.List.of(value));
            System.out.println("released");
            while (System.in.read() >= 0) {}
        }
    }
}
