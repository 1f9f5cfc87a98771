/* Linked with a second library, whether it is used or not. */

int scale(int rows) { return 2 * rows; }
