// What the programs in Go beside this file share: the journal of sections, and the end after an error. go.rs puts this
// file beside each of them.
package main

import (
	"errors"
	"log"
	"os"
	"path/filepath"
	"strings"
)

// A journal is the file in which all programs of a test record their sections, in the directory of the test: see
// e2e/src/turns.rs.
type journal struct {
	directory, who string
	file           *os.File
}

func openJournal(directory, who string) journal {
	file, err := os.OpenFile(filepath.Join(directory, "journal"), os.O_WRONLY|os.O_APPEND, 0)
	must(err)
	return journal{directory, who, file}
}

func (j journal) enter() {
	j.write("enter " + j.who + " -")
}

// leave records the end of a section; how is "held", or "slept" if the machine did not run the program for long.
func (j journal) leave(how string) {
	j.write("leave " + j.who + " " + how)
}

// write adds a line in one write, so that no other line is mixed into it.
func (j journal) write(line string) {
	_, err := j.file.WriteString(line + "\n")
	must(err)
}

// lingers tells whether the test wants this program to stay in its section.
func (j journal) lingers() bool {
	text, err := os.ReadFile(filepath.Join(j.directory, "linger"))
	return err == nil && string(text) == strings.Split(j.who, "-")[0]
}

func (j journal) isOver() bool {
	_, err := os.Stat(filepath.Join(j.directory, "over"))
	return !errors.Is(err, os.ErrNotExist)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
