/* Counts the bytes that TensorFlow allocates for tensors on CPUs.

It is preloaded (LD_PRELOAD). TensorFlow's CPU allocator calls posix_memalign or
aligned_alloc for each tensor, with the bytes that a kernel asked for; blocks of
less than 64 bytes are left out. Bytes of kernels' outputs are counted apart from
all bytes: the others are kernels' scratch memory, which differs between devices.

Kernels say that they are cheap, as those of GPUs do: the executor then starts
all of them in one thread, in the order in which they become ready. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#define SLOTS (1u << 20)
#define LEAST 64

static struct {
  void *block;
  size_t size;
  int is_output;
} table[SLOTS];

static atomic_flag lock = ATOMIC_FLAG_INIT;
static long all, most_all, outputs, most_outputs;
static __thread int in_output;

static void enter(void) {
  while (atomic_flag_test_and_set(&lock)) {
  }
}

static void leave(void) { atomic_flag_clear(&lock); }

static uint32_t slot(void *block) {
  return (uint32_t)(((uintptr_t)block >> 4) * 2654435761u) & (SLOTS - 1);
}

static void add(void *block, size_t size) {
  enter();
  uint32_t i = slot(block);
  while (table[i].block) i = (i + 1) & (SLOTS - 1);
  table[i].block = block;
  table[i].size = size;
  table[i].is_output = in_output > 0;
  all += size;
  if (all > most_all) most_all = all;
  if (in_output) outputs += size;
  if (outputs > most_outputs) most_outputs = outputs;
  leave();
}

static void forget(void *block) {
  enter();
  uint32_t i = slot(block);
  while (table[i].block && table[i].block != block) i = (i + 1) & (SLOTS - 1);
  if (table[i].block) {
    all -= table[i].size;
    if (table[i].is_output) outputs -= table[i].size;
    /* Moves later entries of the run into the gap (linear probing). */
    uint32_t j = i;
    for (;;) {
      j = (j + 1) & (SLOTS - 1);
      if (!table[j].block) break;
      uint32_t home = slot(table[j].block);
      if (((j - home) & (SLOTS - 1)) >= ((j - i) & (SLOTS - 1))) {
        table[i] = table[j];
        i = j;
      }
    }
    table[i].block = 0;
  }
  leave();
}

int posix_memalign(void **block, size_t alignment, size_t size) {
  static int (*real)(void **, size_t, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "posix_memalign");
  int status = real(block, alignment, size);
  if (!status && size >= LEAST) add(*block, size);
  return status;
}

void *aligned_alloc(size_t alignment, size_t size) {
  static void *(*real)(size_t, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "aligned_alloc");
  void *block = real(alignment, size);
  if (block && size >= LEAST) add(block, size);
  return block;
}

void free(void *block) {
  static void (*real)(void *);
  if (!real) real = dlsym(RTLD_NEXT, "free");
  if (block) forget(block);
  real(block);
}

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

/* OpKernelContext::allocate_output(int, const TensorShape&, Tensor**), and with
AllocatorAttributes. A Status is returned through a pointer, the first argument. */
#define OUTPUT \
  _ZN10tensorflow15OpKernelContext15allocate_outputEiRKNS_11TensorShapeEPPNS_6TensorE
#define OUTPUT_WITH \
  _ZN10tensorflow15OpKernelContext15allocate_outputEiRKNS_11TensorShapeEPPNS_6TensorEN3tsl19AllocatorAttributesE

/* TensorFlow 2.18 is loaded for itself only, and RTLD_NEXT doesn't find it. */
static void *original(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found) return found;
  void *library = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
  return dlsym(library, name);
}

void *OUTPUT(void *status, void *self, int index, void *shape, void *output) {
  static void *(*real)(void *, void *, int, void *, void *);
  if (!real) real = original(TEXT(OUTPUT));
  in_output++;
  void *result = real(status, self, index, shape, output);
  in_output--;
  return result;
}

void *OUTPUT_WITH(void *status, void *self, int index, void *shape, void *output,
                  uint64_t attributes) {
  static void *(*real)(void *, void *, int, void *, void *, uint64_t);
  if (!real) real = original(TEXT(OUTPUT_WITH));
  in_output++;
  void *result = real(status, self, index, shape, output, attributes);
  in_output--;
  return result;
}

/* OpKernel::IsExpensive() */
int _ZN10tensorflow8OpKernel11IsExpensiveEv(void *kernel) {
  (void)kernel;
  return 0;
}

long bytes_all(void) { return all; }
long bytes_outputs(void) { return outputs; }
long most_bytes_all(void) { return most_all; }
long most_bytes_outputs(void) { return most_outputs; }

void reset_peaks(void) {
  enter();
  most_all = all;
  most_outputs = outputs;
  leave();
}
