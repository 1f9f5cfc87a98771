/* Which images are loaded into this process, and for each that calls OpenMP functions it does not define, what the
 * calls are bound to: the address in the slot that the loader filled (or will fill at the first call).
 *
 * Reads the loader's list and mapped memory, nothing else: no OpenMP function is called, so no runtime is initialised
 * by looking; nothing is allocated; no callback enters the caller. A probe calls this by ctypes in a foreign process,
 * harness by cffi in its own. Linux: System V gABI chapter 5, and the GNU hash table, whose first number tells where
 * the undefined symbols end, so that most images are done after a short walk. Images of another dlmopen namespace are
 * not in the loader's list; /proc/PID/maps has them. macOS: <mach-o/loader.h>; the slots are in the sections of
 * symbol pointers, the indirect symbol table names them.
 */
#include "harness.h"

#include <string.h>
#include <unistd.h>

/* Copies a string behind the others; where it starts, or would if there were room. */
static uint32_t add_text(struct harness_listing *listing, const char *text, size_t length) {
    uint32_t at = listing->text_count;
    if ((uint64_t)at + length < listing->text_room) {
        memcpy(listing->text + at, text, length);
        listing->text[at + length] = 0;
    }
    listing->text_count += (uint32_t)length + 1;
    return at;
}

static void add_image(struct harness_listing *listing, struct harness_image image) {
    if (listing->image_count < listing->image_room)
        listing->images[listing->image_count] = image;
    listing->image_count++;
}

/* A call of the image that was added last. */
static void add_call(struct harness_listing *listing, const char *name, const uint64_t *slot, uint64_t value) {
    struct harness_call call = {(uint64_t)(uintptr_t)slot, value, listing->image_count - 1, -1, 0, 0};
    call.name = add_text(listing, name, strlen(name));
    if (listing->call_count < listing->call_room)
        listing->calls[listing->call_count] = call;
    listing->call_count++;
}

/* The first letter decides for nearly all of the many thousand names that are looked at. */
static int is_openmp(const char *name) {
    switch (name[0]) {
    case 'o':
        return strncmp(name, "omp_", 4) == 0;
    case 'G':
        return strncmp(name, "GOMP_", 5) == 0;
    case 'k':
        return strncmp(name, "kmp_", 4) == 0;
    case '_':
        return name[1] == '_' && strncmp(name, "__kmpc_", 7) == 0;
    }
    return 0;
}

/* What a runtime or a BLAS library defines whatever its file is called; a static copy with hidden symbols does not. */
static const struct {
    const char *name;
    uint32_t flag;
} MARKS[] = {
    {"__kmpc_fork_call", HARNESS_DEFINES_KMPC},
    {"GOMP_parallel", HARNESS_DEFINES_GOMP},
    {"openblas_get_config", HARNESS_DEFINES_OPENBLAS},
    {"openblas_get_config64_", HARNESS_DEFINES_OPENBLAS},
    {"scipy_openblas_get_config", HARNESS_DEFINES_OPENBLAS},
    {"scipy_openblas_get_config64_", HARNESS_DEFINES_OPENBLAS},
    {"MKL_Get_Version_String", HARNESS_DEFINES_MKL},
    {"bli_info_get_version_str", HARNESS_DEFINES_BLIS},
};
#define MARK_COUNT (sizeof MARKS / sizeof *MARKS)

#ifdef __linux__
#include <elf.h>

/* By hand from <link.h>, in whose place a compiler that is told -I native finds our own link.h; man 3 dl_iterate_phdr.
 */
struct dl_phdr_info {
    Elf64_Addr dlpi_addr;
    const char *dlpi_name;
    const Elf64_Phdr *dlpi_phdr;
    Elf64_Half dlpi_phnum;
};
int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *info, size_t size, void *data), void *data);

#if defined(__x86_64__)
#define IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#define IS_SLOT(type) ((void)(type), 0)
#endif

/* The tables of one image, as far as they are needed here. */
struct tables {
    const Elf64_Sym *symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const Elf64_Rela *relocations[2];
    size_t counts[2];
    size_t relative;
};

/* glibc has turned the offsets of the dynamic segment into addresses, musl and the vDSO have not. */
static const void *place(Elf64_Addr bias, Elf64_Addr value) {
    return (const void *)(value < bias ? value + bias : value);
}

static struct tables find_tables(Elf64_Addr bias, const Elf64_Dyn *entry) {
    struct tables found = {0};
    for (; entry->d_tag != DT_NULL; entry++) {
        Elf64_Addr value = entry->d_un.d_ptr;
        switch (entry->d_tag) {
        case DT_SYMTAB:
            found.symbols = place(bias, value);
            break;
        case DT_STRTAB:
            found.strings = place(bias, value);
            break;
        case DT_GNU_HASH:
            found.gnu_hash = place(bias, value);
            break;
        case DT_JMPREL:
            found.relocations[0] = place(bias, value);
            break;
        case DT_PLTRELSZ:
            found.counts[0] = value / sizeof(Elf64_Rela);
            break;
        case DT_RELA:
            found.relocations[1] = place(bias, value);
            break;
        case DT_RELASZ:
            found.counts[1] = value / sizeof(Elf64_Rela);
            break;
        case DT_RELACOUNT:
            found.relative = value;
            break;
        }
    }
    return found;
}

static int is_call(const struct tables *tables, uint64_t symbol) {
    return tables->symbols[symbol].st_shndx == SHN_UNDEF &&
           is_openmp(tables->strings + tables->symbols[symbol].st_name);
}

/* The first and the last symbol that may be a call; every one where no GNU hash table tells. */
static void find_range(const struct tables *tables, uint64_t *first, uint64_t *last) {
    *first = 1;
    *last = UINT32_MAX;
    if (!tables->gnu_hash || tables->gnu_hash[1] <= 1) /* an empty one has 0 there, whatever is undefined */
        return;
    uint64_t end = tables->gnu_hash[1];
    while (*first < end && !is_call(tables, *first))
        ++*first;
    *last = end - 1;
    while (*last > *first && !is_call(tables, *last))
        --*last;
}

/* By the GNU hash table: a Bloom filter, buckets, chains of hashes that end with an odd one. */
static int defines(const struct tables *tables, const char *name) {
    const uint32_t *table = tables->gnu_hash, buckets = table[0], first = table[1], words = table[2];
    const Elf64_Addr *bloom = (const Elf64_Addr *)(table + 4);
    const uint32_t *starts = (const uint32_t *)(bloom + words), *chains = starts + buckets;
    uint32_t hash = 5381;
    if (words == 0 || buckets == 0) /* damaged */
        return 0;
    for (const char *letter = name; *letter; letter++)
        hash = hash * 33 + (uint8_t)*letter;
    Elf64_Addr word = bloom[hash / 64 % words];
    if (!(word >> hash % 64 & word >> (hash >> table[3]) % 64 & 1))
        return 0;
    for (uint32_t symbol = starts[hash % buckets]; symbol >= first && symbol; symbol++) {
        uint32_t seen = chains[symbol - first];
        if ((seen | 1) == (hash | 1) && strcmp(tables->strings + tables->symbols[symbol].st_name, name) == 0)
            return 1;
        if (seen & 1)
            return 0;
    }
    return 0;
}

static uint32_t find_marks(const struct tables *tables) {
    uint32_t flags = 0;
    for (size_t i = 0; i < MARK_COUNT; i++)
        if (defines(tables, MARKS[i].name))
            flags |= MARKS[i].flag;
    return flags;
}

static void list_calls(struct harness_listing *listing, Elf64_Addr bias, const struct tables *tables) {
    uint64_t first, last;
    find_range(tables, &first, &last);
    if (first > last)
        return;
    for (int table = 0; table < 2; table++) {
        size_t from = table == 1 ? tables->relative : 0; /* those without a symbol come first */
        for (size_t i = from; tables->relocations[table] && i < tables->counts[table]; i++) {
            const Elf64_Rela *relocation = &tables->relocations[table][i];
            uint64_t symbol = ELF64_R_SYM(relocation->r_info);
            if (symbol < first || symbol > last || !IS_SLOT(ELF64_R_TYPE(relocation->r_info)))
                continue;
            if (!is_call(tables, symbol))
                continue;
            const uint64_t *slot = (const uint64_t *)(bias + relocation->r_offset);
            add_call(listing, tables->strings + tables->symbols[symbol].st_name, slot, *slot);
        }
    }
}

static uint32_t add_path(struct harness_listing *listing, const char *name) {
    if (*name || listing->image_count)
        return add_text(listing, name, strlen(name));
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program);
    return add_text(listing, program, length < 0 ? 0 : (size_t)length);
}

static int list_image(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct harness_listing *listing = data;
    const Elf64_Dyn *dynamic = NULL;
    uint64_t first = UINT64_MAX, end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_DYNAMIC)
            dynamic = (const Elf64_Dyn *)(info->dlpi_addr + segment->p_vaddr);
        if (segment->p_type != PT_LOAD)
            continue;
        uint64_t start = segment->p_vaddr / 4096 * 4096, stop = segment->p_vaddr + segment->p_memsz;
        first = start < first ? start : first;
        end = stop > end ? stop : end;
    }
    if (first > end)
        return 0;
    struct harness_image image = {info->dlpi_addr + first, end - first, 0, 0};
    image.path = add_path(listing, info->dlpi_name);
    struct tables tables = {0};
    if (dynamic)
        tables = find_tables(info->dlpi_addr, dynamic);
    int has_symbols = tables.symbols && tables.strings;
    if (has_symbols && tables.gnu_hash)
        image.defines = find_marks(&tables);
    add_image(listing, image);
    if (has_symbols && listing->calls)
        list_calls(listing, info->dlpi_addr, &tables);
    return 0;
}

static void list_images(struct harness_listing *listing) { dl_iterate_phdr(list_image, listing); }
#endif

#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <mach-o/loader.h>
#include <mach-o/nlist.h>

/* Set for what lies in dyld's shared cache (mach-o/loader.h of newer SDKs): Apple's own, which call no such function.
 */
#define IN_SHARED_CACHE 0x80000000u
/* Without the signature that arm64e puts into a pointer's upper bits. */
#define ADDRESS_BITS 0x00007fffffffffffull

struct tables {
    const struct nlist_64 *symbols;
    const char *strings;
    const uint32_t *indirect;
    uint32_t indirect_count;
    uint32_t defined;
    uint32_t defined_count;
};

static const struct load_command *next_command(const struct load_command *command) {
    return (const struct load_command *)((const char *)command + command->cmdsize);
}

/* The symbol tables lie in __LINKEDIT, and their places are told as offsets in the file. */
static struct tables find_tables(const struct mach_header_64 *header, intptr_t slide) {
    struct tables found = {0};
    const char *linkedit = NULL;
    const struct load_command *command = (const struct load_command *)(header + 1);
    for (uint32_t i = 0; i < header->ncmds; i++, command = next_command(command)) {
        const struct segment_command_64 *segment = (const void *)command;
        if (command->cmd == LC_SEGMENT_64 && strcmp(segment->segname, SEG_LINKEDIT) == 0)
            linkedit = (const char *)(segment->vmaddr + (uint64_t)slide - segment->fileoff);
        if (command->cmd == LC_SYMTAB && linkedit) {
            const struct symtab_command *table = (const void *)command;
            found.symbols = (const void *)(linkedit + table->symoff);
            found.strings = linkedit + table->stroff;
        }
        if (command->cmd == LC_DYSYMTAB && linkedit) {
            const struct dysymtab_command *table = (const void *)command;
            found.indirect = (const void *)(linkedit + table->indirectsymoff);
            found.indirect_count = table->nindirectsyms;
            found.defined = table->iextdefsym;
            found.defined_count = table->nextdefsym;
        }
    }
    return found;
}

/* From the header itself: asked of dyld by number, it could be another image's by now. */
static intptr_t find_slide(const struct mach_header_64 *header) {
    const struct load_command *command = (const struct load_command *)(header + 1);
    for (uint32_t i = 0; i < header->ncmds; i++, command = next_command(command)) {
        const struct segment_command_64 *segment = (const void *)command;
        if (command->cmd == LC_SEGMENT_64 && strcmp(segment->segname, SEG_TEXT) == 0)
            return (intptr_t)((uint64_t)(uintptr_t)header - segment->vmaddr);
    }
    return 0;
}

static uint32_t find_marks(const struct tables *tables) {
    uint32_t flags = 0;
    for (uint32_t i = 0; i < tables->defined_count; i++) {
        const char *name = tables->strings + tables->symbols[tables->defined + i].n_un.n_strx;
        for (size_t mark = 0; mark < MARK_COUNT; mark++)
            if (name[0] == '_' && strcmp(name + 1, MARKS[mark].name) == 0)
                flags |= MARKS[mark].flag;
    }
    return flags;
}

static void list_section(struct harness_listing *listing, const struct section_64 *section, intptr_t slide,
                         const struct tables *tables) {
    uint32_t type = section->flags & SECTION_TYPE;
    if (type != S_LAZY_SYMBOL_POINTERS && type != S_NON_LAZY_SYMBOL_POINTERS)
        return;
    const uint64_t *slots = (const uint64_t *)(section->addr + (uint64_t)slide);
    for (uint64_t i = 0; i < section->size / 8 && section->reserved1 + i < tables->indirect_count; i++) {
        uint32_t symbol = tables->indirect[section->reserved1 + i];
        if (symbol & (INDIRECT_SYMBOL_LOCAL | INDIRECT_SYMBOL_ABS))
            continue;
        const char *name = tables->strings + tables->symbols[symbol].n_un.n_strx;
        int undefined = (tables->symbols[symbol].n_type & N_TYPE) == N_UNDF;
        if (undefined && name[0] == '_' && is_openmp(name + 1))
            add_call(listing, name + 1, &slots[i], slots[i] & ADDRESS_BITS);
    }
}

static void list_image(struct harness_listing *listing, const struct mach_header_64 *header, const char *path) {
    struct harness_image image = {(uint64_t)(uintptr_t)header, 0, 0, 0};
    intptr_t slide = find_slide(header);
    struct tables tables = find_tables(header, slide);
    int cached = (header->flags & IN_SHARED_CACHE) != 0;
    int has_symbols = !cached && tables.symbols && tables.indirect;
    const struct load_command *first = (const struct load_command *)(header + 1), *command = first;
    for (uint32_t i = 0; i < header->ncmds; i++, command = next_command(command)) {
        const struct segment_command_64 *segment = (const void *)command;
        if (command->cmd != LC_SEGMENT_64 || segment->initprot == 0)
            continue; /* __PAGEZERO */
        if (cached && strcmp(segment->segname, SEG_TEXT) != 0)
            continue; /* the others lie far away, among those of other images */
        uint64_t end = segment->vmaddr + segment->vmsize + (uint64_t)slide;
        image.size = end - image.base > image.size ? end - image.base : image.size;
    }
    image.path = add_text(listing, path, strlen(path));
    if (has_symbols)
        image.defines = find_marks(&tables);
    add_image(listing, image);
    command = first;
    for (uint32_t i = 0; i < header->ncmds; i++, command = next_command(command)) {
        const struct segment_command_64 *segment = (const void *)command;
        if (!has_symbols || !listing->calls || command->cmd != LC_SEGMENT_64)
            continue;
        const struct section_64 *sections = (const void *)(segment + 1);
        for (uint32_t n = 0; n < segment->nsects; n++)
            list_section(listing, &sections[n], slide, &tables);
    }
}

/* Not locked against a dlclose meanwhile: dyld offers no way that does not leave a callback behind. */
static void list_images(struct harness_listing *listing) {
    for (uint32_t i = 0; i < _dyld_image_count(); i++) {
        const struct mach_header *header = _dyld_get_image_header(i);
        const char *path = _dyld_get_image_name(i);
        if (header && path && header->magic == MH_MAGIC_64)
            list_image(listing, (const struct mach_header_64 *)header, path);
    }
}
#endif

/* Where a call leads. Into its own image: that is the loader's stub, the function was not called yet. */
static void find_target(const struct harness_listing *listing, struct harness_call *call) {
    for (uint32_t i = 0; i < listing->image_count; i++) {
        const struct harness_image *image = &listing->images[i];
        if (call->value - image->base < image->size)
            call->target = (int32_t)i;
    }
    call->lazy = call->target == (int32_t)call->image;
}

int32_t harness_list_images(struct harness_listing *listing) {
    listing->image_count = listing->call_count = listing->text_count = 0;
    list_images(listing);
    if (listing->image_count > listing->image_room || listing->call_count > listing->call_room ||
        listing->text_count > listing->text_room)
        return 0;
    for (uint32_t i = 0; i < listing->call_count; i++)
        find_target(listing, &listing->calls[i]);
    return 1;
}

int32_t harness_find_relocations(const void *table, uint32_t count, uint32_t first, uint32_t last, uint32_t *rows,
                                 int32_t most) {
    int32_t found = 0;
    for (uint32_t row = 0; row < count; row++) {
        uint32_t symbol;
        memcpy(&symbol, (const char *)table + 24 * (uint64_t)row + 12, sizeof symbol); /* upper half of r_info */
        if (symbol < first || symbol > last)
            continue;
        if (found < most)
            rows[found] = row;
        found++;
    }
    return found;
}
