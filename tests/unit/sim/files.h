/* files.h: small trace files for the simulator's tests. */
#ifndef TIDEPOOL_TESTS_UNIT_SIM_FILES_H
#define TIDEPOOL_TESTS_UNIT_SIM_FILES_H

#include <stdbool.h>

#define REQUEST_HEADER "arrival_s,endpoint,input_tokens,output_tokens\n"
#define RATE_HEADER                                                                                \
    "t_s,endpoint,rate_rps,iat_cv,iat_family,iat_shape,mean_input_tokens,mean_output_tokens,gap\n"
#define JOB_HEADER "job_id,submit_s,duration_s,num_gpus,group\n"
#define ELASTIC_HEADER                                                                             \
    "workload,job,submit_s,application,tuned_gpus,tuned_batch,user_gpus,user_batch\n"
#define STEP_TIME_HEADER                                                                           \
    "application,num_nodes,num_gpus,placement,batch_per_gpu,step_time_s,sync_time_s\n"
#define CONVERGENCE_HEADER                                                                         \
    "application,batch_size,epoch,progress,iteration,metric,grad_sqr,grad_var\n"

/* Writes a new file, which the caller unlinks; its name stays valid until four more are made. */
const char *file_make(const char *text, bool compressed);

#endif
