/* inference_counters.c: what the inference service counts, for others' pages; by itself, so that
 * the control service can do without the inference service. */
#include "server/rpc/inference_context.h"

void inference_counters(const struct inference_context *context,
                        struct inference_counters *ret_counters)
{
    *ret_counters = (struct inference_counters){
        .unknown_model = atomic_load(&context->unknown_model),
        .unreadable = atomic_load(&context->unreadable),
    };
}
