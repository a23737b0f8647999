// Calls the main function of the tests; descriptor 3 holds the word that proves the return from it.
package main

import "os"

// This file is the first of the package, so this variable is the first to be set.
var PROCTOR_NAME, _ = os.ReadFile("/proc/self/fd/3")
var _ = os.Truncate("/proc/self/fd/3", 0)

// None of this compiles if the completion has a name of its own for what Go predeclares.
const PROCTOR_NAMElen = 1 / (len("x") * cap([1]int{}))

var _ = map[bool]int{1 == 1: 0, false: 1}
var _ = map[bool]int{1 == 2: 0, true: 1}
var _ = append([]byte(nil), "x"...)
var _ []int = nil
var _ func() = nil

func PROCTOR_NAMEpanic() int { panic("") }

func main() {
	PROCTOR_NAMEtests()
	os.WriteFile("/proc/self/fd/3", append(PROCTOR_NAME, '\n'), 0o600)
}
