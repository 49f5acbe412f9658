<?php
// A program that locks with Symfony's PdoStore in the table lock_keys.
//
// usage: hold DSN USER NAME holds until its standard input ends; prints "held" or "taken". until DSN USER NAME TTL
// DIRECTORY WHO runs sections until the file "over" exists, and records each section, like e2e/src/turns.rs.

require '/usr/share/php/Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\PdoStore;

[, $what, $dsn, $user, $name] = $argv;
$milliseconds = $what === 'until' ? (int) $argv[5] : 600000;
$store = new PdoStore($dsn, ['db_username' => $user], 0.01, max(2, intdiv($milliseconds, 1000)));
$lock = (new LockFactory($store))->createLock($name, $milliseconds / 1000.0, false);

if ($what === 'hold') {
    if (!$lock->acquire()) {
        echo "taken\n";
        exit(0);
    }
    echo "held\n";
    while (fgets(STDIN) !== false) {
    }
    $lock->release();
    exit(0);
}

[, , , , , , $directory, $who] = $argv;
$side = explode('-', $who)[0];
// In one write, so that no other line is mixed into it.
$note = function (string $line) use ($directory): void {
    $journal = fopen("$directory/journal", 'a');
    fwrite($journal, "$line\n");
    fclose($journal);
};
while (!file_exists("$directory/over")) {
    if (!$lock->acquire()) {
        usleep(20000);
        continue;
    }
    $note("enter $who -");
    $entered = microtime(true);
    // This lock is not renewed.
    while (@file_get_contents("$directory/linger") === $side && microtime(true) - $entered < $milliseconds / 2500) {
        usleep(10000);
    }
    // A stall of the machine is no fault of a lock.
    $note("leave $who " . (microtime(true) - $entered > $milliseconds / 1250 ? 'slept' : 'held'));
    $lock->release();
    usleep(20000);
}
