#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "server/serve/queue.h"

static struct serve_request requests[2048];
static struct tensor tensors[2048];

static struct request_queue queue_of(size_t count, const uint32_t *rows)
{
    struct request_queue queue = {.input_count = 1, .batched = true};
    memset(requests, 0, sizeof(requests));
    for (size_t i = 0; i < count; i++) {
        tensors[i] = (struct tensor){.rank = 2, .dims = {rows[i], 1}};
        requests[i] = (struct serve_request){
            .inputs = &tensors[i], .rows = rows[i], .bytes = 10, .arrival_ns = 100 + i};
        queue_push(&queue, &requests[i]);
    }
    return queue;
}

static void a_request_leaves_from_anywhere_in_one_step(void **state)
{
    struct request_queue queue = queue_of(3, (const uint32_t[]){1, 2, 3});
    (void)state;
    queue_remove(&queue, &requests[1]);
    assert_int_equal(queue.count, 2);
    assert_int_equal(queue.rows, 4);
    assert_int_equal(queue.bytes, 20);
    assert_ptr_equal(queue_after(&queue, &requests[0]), &requests[2]);
    queue_remove(&queue, &requests[2]);
    queue_remove(&queue, &requests[0]);
    assert_null(queue_first(&queue));
    assert_int_equal(queue_oldest_ns(&queue), UINT64_MAX);
}

static void urgent_requests_come_first_and_the_oldest_is_still_known(void **state)
{
    struct request_queue queue = queue_of(2, (const uint32_t[]){1, 1});
    (void)state;
    requests[2] =
        (struct serve_request){.inputs = &tensors[0], .rows = 1, .priority = 1, .arrival_ns = 500};
    queue_push(&queue, &requests[2]);
    assert_ptr_equal(queue_first(&queue), &requests[2]);
    assert_ptr_equal(queue_after(&queue, &requests[2]), &requests[0]);
    assert_int_equal(queue_oldest_ns(&queue), 100);
    queue_remove(&queue, &requests[2]);
    queue_push_front(&queue, &requests[2]);
    assert_ptr_equal(queue_first(&queue), &requests[2]);
}

static void no_request_is_split_and_smaller_ones_fill_the_gap(void **state)
{
    struct serve_request *batch[8];
    uint32_t rows;
    struct request_queue queue = queue_of(3, (const uint32_t[]){5, 4, 3});
    (void)state;
    assert_int_equal(queue_collect(&queue, 8, 8, batch, &rows), 2);
    assert_int_equal(rows, 8);
    assert_ptr_equal(batch[1], &requests[2]);
    assert_int_equal(queue_collect(&queue, 2, 8, batch, &rows), 1); /* the first one goes alone */
    assert_int_equal(rows, 5);
}

static void only_equal_shapes_share_a_batch_even_when_hashes_collide(void **state)
{
    struct serve_request *batch[8];
    uint32_t rows;
    struct request_queue queue = queue_of(3, (const uint32_t[]){1, 1, 1});
    (void)state;
    tensors[1].dims[1] = 7;
    for (int i = 0; i < 3; i++) {
        requests[i].shapes = 42; /* as if they collided */
    }
    assert_int_equal(queue_collect(&queue, 8, 8, batch, &rows), 2);
    assert_ptr_equal(batch[1], &requests[2]);
    assert_int_not_equal(request_shapes(&tensors[0], 1, true),
                         request_shapes(&tensors[1], 1, true));
    tensors[1].dims[1] = 1;
    tensors[1].dims[0] = 9; /* the batch dimension does not count */
    assert_int_equal(request_shapes(&tensors[0], 1, true), request_shapes(&tensors[1], 1, true));
}

static void looking_for_company_is_bounded(void **state)
{
    static uint32_t rows_of[2048];
    struct serve_request *batch[8];
    uint32_t rows;
    (void)state;
    for (size_t i = 0; i < 2048; i++) {
        rows_of[i] = 1;
    }
    struct request_queue queue = queue_of(2048, rows_of);
    for (size_t i = 1; i < 2047; i++) {
        requests[i].shapes = 1;
        requests[i].rows = 1;
    }
    assert_int_equal(queue_collect(&queue, 8, 8, batch, &rows), 1); /* the 2048th is out of sight */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_leaves_from_anywhere_in_one_step),
        cmocka_unit_test(urgent_requests_come_first_and_the_oldest_is_still_known),
        cmocka_unit_test(no_request_is_split_and_smaller_ones_fill_the_gap),
        cmocka_unit_test(only_equal_shapes_share_a_batch_even_when_hashes_collide),
        cmocka_unit_test(looking_for_company_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
