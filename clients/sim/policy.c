/* policy.c: what all policies share. */
#include "clients/sim/policy.h"

struct policy_choice policy_standard(const struct policy_class *class)
{
    struct policy_choice choice = {.class = class};
    for (size_t i = 0; i < class->parameter_count; i++) {
        choice.parameters[i] = class->parameters[i].standard;
    }
    return choice;
}
