/* Dies in a function that says what it broke. */
#define BREAKS(what)                                                                                                   \
    void break_##what(void) { *(volatile int *)8 = 1; }
BREAKS(gru)
BREAKS(accumulation)
BREAKS(search)
