import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import liquibase.database.DatabaseFactory;
import liquibase.database.jvm.JdbcConnection;
import liquibase.lockservice.LockService;
import liquibase.lockservice.LockServiceFactory;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/**
 * A program that locks in a table with ShedLock or Liquibase.
 *
 * <p>usage: hold KIND URL NAME holds until its standard input ends; prints "held" or "taken". until KIND URL NAME TTL
 * DIRECTORY WHO runs sections until the file "over" exists, and records each section, like e2e/src/turns.rs.
 *
 * <p>KIND is shedlock or liquibase. URL is of JDBC.
 */
public class SqlTables {
    private interface Lock {
        boolean tryLock() throws Exception;

        void unlock() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        long ttl = args[0].equals("until") ? Long.parseLong(args[4]) : 600_000;
        Lock lock = args[1].equals("shedlock") ? shedlock(args[2], args[3], Duration.ofMillis(ttl)) : liquibase(args[2]);
        switch (args[0]) {
            case "hold" -> hold(lock);
            case "until" -> until(lock, ttl, Path.of(args[5]), args[6]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static Lock shedlock(String url, String name, Duration ttl) {
        var template = new JdbcTemplate(new DriverManagerDataSource(url));
        LockProvider provider = new JdbcTemplateLockProvider(
            JdbcTemplateLockProvider.Configuration.builder().withJdbcTemplate(template).usingDbTime().build());
        return new Lock() {
            private SimpleLock held;

            @Override
            public boolean tryLock() {
                Optional<SimpleLock> lock =
                    provider.lock(new LockConfiguration(Instant.now(), name, ttl, Duration.ZERO));
                held = lock.orElse(null);
                return lock.isPresent();
            }

            @Override
            public void unlock() {
                held.unlock();
            }
        };
    }

    private static Lock liquibase(String url) throws Exception {
        Connection connection = DriverManager.getConnection(url);
        var database = DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new JdbcConnection(connection));
        LockService service = LockServiceFactory.getInstance().getLockService(database);
        return new Lock() {
            @Override
            public boolean tryLock() throws Exception {
                return service.acquireLock();
            }

            @Override
            public void unlock() throws Exception {
                service.releaseLock();
            }
        };
    }

    private static void hold(Lock lock) throws Exception {
        if (lock.tryLock()) {
            System.out.println("held");
            while (System.in.read() >= 0) {}
            lock.unlock();
        } else {
            System.out.println("taken");
        }
    }

    private static void until(Lock lock, long ttl, Path directory, String who) throws Exception {
        String side = who.split("-")[0];
        Path journal = directory.resolve("journal");
        while (!Files.exists(directory.resolve("over"))) {
            if (!lock.tryLock()) {
                Thread.sleep(20);
                continue;
            }
            note(journal, "enter " + who + " -");
            long entered = System.nanoTime();
            // This lock is not renewed.
            while (side.equals(read(directory.resolve("linger"))) && System.nanoTime() - entered < ttl * 400_000) {
                Thread.sleep(10);
            }
            // A stall of the machine is no fault of a lock.
            note(journal, "leave " + who + (System.nanoTime() - entered > ttl * 800_000 ? " slept" : " held"));
            lock.unlock();
            Thread.sleep(20);
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
