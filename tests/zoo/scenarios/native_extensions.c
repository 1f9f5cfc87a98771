/* One instruction of each of three extensions that no processor has all of: AMX is Intel's, XOP was AMD's. As bytes, so
 * that any assembler will do. */

#define ZOO __attribute__((noinline, visibility("default")))

ZOO int zoo_add_512(void) {
    __asm__ volatile(".byte 0x62, 0xf1, 0x6c, 0x48, 0x58, 0xd9"); /* vaddps zmm3, zmm2, zmm1 */
    return 1;
}

ZOO int zoo_release_tiles(void) {
    __asm__ volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0"); /* tilerelease */
    return 1;
}

ZOO int zoo_choose(void) {
    __asm__ volatile(".byte 0x8f, 0xe8, 0x60, 0xa2, 0xe2, 0x10"); /* vpcmov xmm4, xmm3, xmm2, xmm1 */
    return 1;
}

ZOO int zoo_add(void) { return 1; }
