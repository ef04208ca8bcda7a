/* hash.c: prints the hash of all actions of one random schedule; the same in every build. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/sim/world.h"

int main(void)
{
    struct world *world = world_create(20250101, true);
    world_play(world, 20000);
    world_settle(world);
    printf("%016" PRIx64 "\n", world_hash(world));
    world_destroy(world);
    return 0;
}
