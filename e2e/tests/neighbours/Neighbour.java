import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ShardedSubscriptionMode;

/**
 * A program that locks with Redisson.
 *
 * <p>usage: turns KIND WHERE NAME SECTIONS runs sections that read and write a counter. hold KIND WHERE NAME holds
 * until its standard input ends; prints "held" or "taken". until KIND WHERE NAME TTL DIRECTORY WHO runs sections until
 * the file "over" exists, and records each section, like e2e/src/turns.rs.
 *
 * <p>KIND is lock, spin, fenced, fair, read or write. WHERE is the port of a Redis; or the ports of Sentinels, a slash
 * and the name of their master; or the ports of cluster nodes after "cluster:", or after "plain-cluster:" without
 * sharded channels.
 */
public class Neighbour {
    private static final StringCodec TEXT = StringCodec.INSTANCE;

    private final RedissonClient client;
    private final RLock lock;
    private final String name;

    private Neighbour(String kind, String where, String name, long watchdog) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdog);
        // Enough for a program of this size.
        config.setThreads(2);
        config.setNettyThreads(2);
        if (where.contains("cluster:")) {
            var nodes = config.useClusterServers().setScanInterval(500).setTimeout(1000).setRetryAttempts(2);
            nodes.setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1);
            nodes.setSubscriptionConnectionMinimumIdleSize(1);
            if (where.startsWith("plain-")) {
                nodes.setShardedSubscriptionMode(ShardedSubscriptionMode.OFF);
            }
            for (String port : where.substring(where.indexOf(':') + 1).split(",")) {
                nodes.addNodeAddress("redis://127.0.0.1:" + port);
            }
        } else if (where.contains("/")) {
            String[] parts = where.split("/");
            var group = config.useSentinelServers().setMasterName(parts[1]).setScanInterval(500).setTimeout(1000);
            group.setRetryAttempts(2).setCheckSentinelsList(false).setMasterConnectionMinimumIdleSize(2);
            group.setSlaveConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
            for (String port : parts[0].split(",")) {
                group.addSentinelAddress("redis://127.0.0.1:" + port);
            }
        } else {
            var server = config.useSingleServer().setAddress("redis://127.0.0.1:" + where);
            server.setConnectionMinimumIdleSize(2).setConnectionPoolSize(8);
        }
        this.client = Redisson.create(config);
        this.name = name;
        this.lock = switch (kind) {
            case "lock" -> client.getLock(name);
            case "spin" -> client.getSpinLock(name);
            case "fenced" -> client.getFencedLock(name);
            case "fair" -> client.getFairLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            default -> throw new IllegalArgumentException(kind);
        };
    }

    public static void main(String[] args) throws Exception {
        String what = args[0];
        long watchdog = what.equals("until") ? Long.parseLong(args[4]) : 30_000;
        Neighbour program = new Neighbour(args[1], args[2], args[3], watchdog);
        switch (what) {
            case "turns" -> program.turns(Integer.parseInt(args[4]));
            case "hold" -> program.hold();
            case "until" -> program.until(watchdog, Path.of(args[5]), args[6]);
            default -> throw new IllegalArgumentException(what);
        }
        program.client.shutdown();
    }

    private void turns(int sections) {
        var inside = client.<String>getBucket("inside", TEXT);
        var count = client.<String>getBucket("count", TEXT);
        for (int turn = 0; turn < sections; turn++) {
            lock.lock();
            try {
                if (!inside.setIfAbsent("java")) {
                    client.getAtomicLong("overlaps").incrementAndGet();
                }
                // Two steps on purpose: an overlap between them loses a count.
                String before = count.get();
                count.set(String.valueOf(before == null ? 1 : Integer.parseInt(before) + 1));
                inside.delete();
            } finally {
                lock.unlock();
            }
        }
    }

    private void hold() throws Exception {
        if (lock.tryLock(0, TimeUnit.SECONDS)) {
            System.out.println("held");
            while (System.in.read() >= 0) {}
            lock.unlock();
        } else {
            System.out.println("taken");
        }
    }

    private void until(long ttl, Path directory, String who) throws Exception {
        String side = who.split("-")[0];
        Path journal = directory.resolve("journal");
        while (!Files.exists(directory.resolve("over"))) {
            try {
                Long token = null;
                if (lock instanceof RFencedLock fenced) {
                    token = fenced.tryLockAndGetToken(5, TimeUnit.SECONDS);
                    if (token == null) {
                        continue;
                    }
                } else if (!lock.tryLock(5, TimeUnit.SECONDS)) {
                    continue;
                }
                note(journal, "enter " + who + " " + (token == null ? "-" : token));
                long looked = System.nanoTime();
                long longest = 0;
                while (side.equals(read(directory.resolve("linger")))) {
                    Thread.sleep(10);
                    longest = Math.max(longest, System.nanoTime() - looked);
                    looked = System.nanoTime();
                }
                longest = Math.max(longest, System.nanoTime() - looked);
                // A stall of the machine is no fault of a lock.
                note(journal, "leave " + who + (longest > ttl * 500_000 ? " slept" : " held"));
                lock.unlock();
            } catch (RuntimeException error) {
                // The server is unreachable, or the lock was lost.
                Thread.sleep(50);
            }
            Thread.sleep(5);
        }
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException error) {
            return null;
        }
    }

    /** Writes a line in one step, so that no other line is mixed into it. */
    private static void note(Path journal, String line) throws IOException {
        Files.write(journal, (line + "\n").getBytes(StandardCharsets.UTF_8), StandardOpenOption.APPEND);
    }
}
