// Hands the tests of the package to the launcher, whose own package has none of the names that this one may define.
package PROCTOR_PACKAGE

import (
	PROCTOR_NAMEtesting "testing"

	PROCTOR_NAME "PROCTOR_MODULE/PROCTOR_NAME"
)

func TestMain(m *PROCTOR_NAMEtesting.M) { PROCTOR_NAME.Run(m, "PROCTOR_EXPECTED") }
