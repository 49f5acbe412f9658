<?php
// A program that shares a lock of a database with other programs, and records its sections.
//
// usage: sql_turns.php KIND DATABASE PORT NAME TTL DIRECTORY WHO
//
// KIND is session (Symfony's PostgreSqlStore), symfony (its PdoStore, in the table lock_keys) or laravel (its
// DatabaseStore, in the table cache_locks, with the prefix app_). DATABASE is postgres or mariadb. TTL is in
// milliseconds. All programs share the directory: see e2e/src/turns.rs.

require 'Symfony/Component/Lock/autoload.php';
require 'Illuminate/Cache/autoload.php';
require __DIR__ . '/journal.php';

use Illuminate\Cache\DatabaseStore;
use Illuminate\Database\Capsule\Manager;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\PdoStore;
use Symfony\Component\Lock\Store\PostgreSqlStore;

[, $kind, $database, $port, $name, $ttl, $directory, $who] = $argv;
$seconds = intdiv((int) $ttl, 1000);
[$driver, $user, $schema] = $database === 'postgres' ? ['pgsql', 'postgres', 'postgres'] : ['mysql', 'root', 'locks'];
$dsn = "$driver:host=127.0.0.1;port=$port;dbname=$schema";

/** A function that tries to acquire the lock, and returns the lock or null. */
function attempt(): callable
{
    global $kind, $dsn, $user, $seconds, $name, $driver, $port, $schema;
    if ($kind === 'laravel') {
        $manager = new Manager();
        $address = ['driver' => $driver, 'host' => '127.0.0.1', 'port' => $port, 'database' => $schema];
        $manager->addConnection($address + ['username' => $user, 'password' => '']);
        $store = new DatabaseStore($manager->getConnection(), 'cache', 'app_');
        return function () use ($store, $name, $seconds) {
            $lock = $store->lock($name, $seconds);
            return $lock->get() ? $lock : null;
        };
    }
    $store = $kind === 'session'
        ? new PostgreSqlStore(new PDO($dsn, $user))
        : new PdoStore($dsn, ['db_username' => $user], 0.01, $seconds);
    $factory = new LockFactory($store);
    return function () use ($factory, $name, $seconds) {
        $lock = $factory->createLock($name, $seconds, false);
        return $lock->acquire(false) ? $lock : null;
    };
}

$attempt = attempt();
$journal = new Journal($directory, $who);
while (!$journal->isOver()) {
    $lock = $attempt();
    if ($lock === null) {
        usleep(20000);
        continue;
    }
    $journal->enter();
    $entered = microtime(true);
    $inside = fn () => $kind === 'session' ? 0 : (microtime(true) - $entered) / $seconds;
    // A session holds until it ends. A lease is not renewed.
    while ($journal->lingers() && $inside() < 0.4) {
        usleep(10000);
    }
    // A stall of the machine is no fault of a lock.
    $journal->leave($inside() > 0.8 ? 'slept' : 'held');
    $lock->release();
    usleep($kind === 'session' ? 2000 : 20000);
}
