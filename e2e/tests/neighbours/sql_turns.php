<?php
// A program that shares a lock of Symfony's PostgreSqlStore with other programs, and records its sections.
//
// usage: sql_turns.php PORT NAME TTL DIRECTORY WHO
//
// TTL has no effect: a session holds until it ends. All programs share the directory: see e2e/src/turns.rs.

require 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\PostgreSqlStore;

[, $port, $name, , $directory, $who] = $argv;
$side = explode('-', $who)[0];
$store = new PostgreSqlStore(new PDO("pgsql:host=127.0.0.1;port=$port;dbname=postgres", 'postgres'));
$factory = new LockFactory($store);
$journal = fopen("$directory/journal", 'a');

while (!file_exists("$directory/over")) {
    clearstatcache();
    $lock = $factory->createLock($name, null, false);
    if (!$lock->acquire(false)) {
        usleep(20000);
        continue;
    }
    fwrite($journal, "enter $who -\n");
    while (@file_get_contents("$directory/linger") === $side) {
        usleep(10000);
    }
    fwrite($journal, "leave $who held\n");
    $lock->release();
    usleep(2000);
}
