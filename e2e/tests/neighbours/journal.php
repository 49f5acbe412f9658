<?php
// The journal in which all programs of a test record their sections, in the directory of the test: see
// e2e/src/turns.rs.

class Journal
{
    private $file;

    public function __construct(private string $directory, private string $who)
    {
        $this->file = fopen("$directory/journal", 'a');
    }

    public function enter(): void
    {
        $this->write("enter $this->who -");
    }

    /** $how: "held", or "slept" if the machine did not run the program for long. */
    public function leave(string $how): void
    {
        $this->write("leave $this->who $how");
    }

    /** Whether the test wants this program to stay in its section. */
    public function lingers(): bool
    {
        return @file_get_contents("$this->directory/linger") === explode('-', $this->who)[0];
    }

    public function isOver(): bool
    {
        clearstatcache();
        return file_exists("$this->directory/over");
    }

    /** Adds a line in one write, so that no other line is mixed into it. */
    private function write(string $line): void
    {
        fwrite($this->file, "$line\n");
    }
}
