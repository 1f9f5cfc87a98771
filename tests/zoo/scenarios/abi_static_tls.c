/* As OpenMP runtimes do it, only larger than what the loader keeps in reserve. */

static __thread char scratch[1 << 20] __attribute__((tls_model("initial-exec")));

char *find_scratch(void) { return scratch; }
