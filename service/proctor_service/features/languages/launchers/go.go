// Calls the main function of the tests; descriptor 3 holds the word that proves the return from it.
// Written without names that a package may define itself, such as `len` and `append`.
package main

import PROCTOR_NAMEos "os"

// This file is the first of the package, so this variable is the first to be set.
var PROCTOR_NAME, _ = PROCTOR_NAMEos.ReadFile("/proc/self/fd/3")
var _ = PROCTOR_NAMEos.Truncate("/proc/self/fd/3", 0)

func main() {
	PROCTOR_NAMEtests()
	end, _ := PROCTOR_NAMEos.OpenFile("/proc/self/fd/3", PROCTOR_NAMEos.O_WRONLY, 0)
	end.Write(PROCTOR_NAME)
	end.WriteString("\n")
}
