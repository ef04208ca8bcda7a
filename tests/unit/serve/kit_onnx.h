/* kit_onnx.h: the library and the made models, for tests that load real ones. */
#ifndef TIDEPOOL_TESTS_SERVE_KIT_ONNX_H
#define TIDEPOOL_TESTS_SERVE_KIT_ONNX_H

/* Group setup: points the ONNX runtime at the test environment's library. */
int kit_onnx_set(void **state);
const char *kit_models(void); /* the folder of made models, a repository */

/* A folder of its own beneath $TMPDIR, removed by kit_folder_remove with all that is in it. */
void kit_folder_make(char *ret_path, unsigned long size);
void kit_folder_remove(const char *path);
/* Writes `text` as <folder>/<relative>, making the folders on the way. */
void kit_file_write(const char *folder, const char *relative, const char *text);

#endif
