import org.flywaydb.core.Flyway;

/**
 * Migrates a database by Flyway, which locks while it migrates.
 *
 * <p>usage: FlywayMigration URL USER DIRECTORY
 */
public final class FlywayMigration {
    public static void main(String[] arguments) {
        Flyway.configure()
                .dataSource(arguments[0], arguments[1], "")
                .locations("filesystem:" + arguments[2])
                .load()
                .migrate();
    }
}
