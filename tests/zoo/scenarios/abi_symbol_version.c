/* Uses one function of the C library, in the version it had when it was built. */

#include <stdlib.h>

int find_environment(void) { return getenv("PATH") != NULL; }
