//! Programs in Java, with Redisson, Jedis, Flyway, ShedLock or Liquibase. `mvn` fetches their packages once for each
//! list of versions, below `target/tmp`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use crate::packages::{Neighbour, installed};

/// The packages: group, name and version.
const PACKAGES: [[&str; 3]; 10] = [
    ["org.redisson", "redisson", "4.7.0"],
    ["redis.clients", "jedis", "7.2.0"],
    ["org.slf4j", "slf4j-nop", "2.0.17"],
    ["org.flywaydb", "flyway-core", "11.0.0"],
    ["org.flywaydb", "flyway-database-postgresql", "11.0.0"],
    ["org.flywaydb", "flyway-mysql", "11.0.0"],
    ["net.javacrumbs.shedlock", "shedlock-provider-jdbc-template", "5.16.0"],
    // The last version with an open-source licence.
    ["org.liquibase", "liquibase-core", "4.33.0"],
    ["org.postgresql", "postgresql", "42.7.8"],
    ["org.mariadb.jdbc", "mariadb-java-client", "3.5.6"],
];
/// The sources beside this file, one for each class.
const SOURCES: [&str; 5] =
    ["Neighbour.java", "Cache.java", "RedisByHand.java", "FlywayMigration.java", "SqlTables.java"];

/// The class path.
static CLASSES: LazyLock<String> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("neighbours-java");
    let sources = SOURCES.map(|source| folder().join(source));
    let texts = sources.each_ref().map(|source| fs::read_to_string(source).unwrap());
    let (list, wanted) = (dir.join("list"), format!("{PACKAGES:?}\n{}", texts.concat()));
    let (jars, classes) = (dir.join("jars"), dir.join("classes"));
    let path = format!("{}/*:{}", jars.display(), classes.display());
    if fs::read_to_string(&list).is_ok_and(|there| there == wanted) {
        return path;
    }
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&classes).unwrap();
    let needed = PACKAGES.map(|[group, name, version]| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>\
             </dependency>"
        )
    });
    let project = format!(
        "<project><modelVersion>4.0.0</modelVersion><groupId>leasehold</groupId><artifactId>neighbours</artifactId>\
         <version>1</version><dependencies>{}</dependencies></project>",
        needed.concat()
    );
    fs::write(dir.join("pom.xml"), project).unwrap();
    let mut fetch = Command::new("mvn");
    fetch.args(["--quiet", "--batch-mode", "--file"]).arg(dir.join("pom.xml"));
    installed(fetch.args([
        "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
        &format!("-DoutputDirectory={}", jars.display()),
    ]));
    let mut compile = Command::new("javac");
    installed(compile.args(["-cp", &path, "-d"]).arg(&classes).args(sources));
    fs::write(list, wanted).unwrap();
    path
});

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/neighbours")
}

/// The command line that starts a program: its class, then its arguments. Its options are for little memory and a fast
/// start.
pub(crate) fn command_line_of(class: &str, arguments: &[&str]) -> Vec<String> {
    let java =
        ["java", "-Xmx160m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", CLASSES.as_str(), class];
    java.iter().chain(arguments).map(|&word| word.to_owned()).collect()
}

/// The command line that starts the program of `Neighbour.java`.
pub(crate) fn command_line(arguments: &[&str]) -> Vec<String> {
    command_line_of("Neighbour", arguments)
}

/// Starts the program of `Neighbour.java`, with these arguments.
pub(crate) fn start(arguments: &[&str]) -> Neighbour {
    start_class("Neighbour", arguments)
}

/// Starts the program of this class, with these arguments.
pub(crate) fn start_class(class: &str, arguments: &[&str]) -> Neighbour {
    let command_line = command_line_of(class, arguments);
    let mut command = Command::new(&command_line[0]);
    command.args(&command_line[1..]);
    Neighbour::run(command)
}
