/* The tree adds the same pairs in whatever order the leaves come and the sums are made; the order
 * of rows is a bijection. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

#include "models/native/random.h"
#include "server/train/order.h"
#include "server/train/tree.h"

/* The sum written out by recursion over the same tree. */
static float expected_sum(const float *leaves, uint32_t count)
{
    float level[64];
    memcpy(level, leaves, count * sizeof(*level));
    for (; count > 1; count = (count + 1) / 2) {
        for (uint32_t i = 0; i < (count + 1) / 2; i++) {
            level[i] = 2 * i + 1 < count ? level[2 * i] + level[2 * i + 1] : level[2 * i];
        }
    }
    return level[0];
}

static struct vector *leaf(struct vector_pool *pool, float value)
{
    struct vector *vector = vector_take(pool);
    assert_non_null(vector);
    vector->data[0] = value;
    return vector;
}

/* Adds what can be added; some sums are given up once first. */
static struct vector *sums_run(struct tree *tree, struct vector_pool *pool, uint64_t random)
{
    struct vector *a, *b, *root = NULL;
    uint32_t node;
    for (uint64_t i = 0; root == NULL && tree_pull(tree, &node, &a, &b); i++) {
        if (random_at(random, i) % 3 == 0) {
            tree_return(tree, node);
        } else {
            root = tree_put(tree, node, leaf(pool, a->data[0] + b->data[0]));
        }
        vector_release(a);
        vector_release(b);
    }
    return root;
}

static void order_of_leaves_does_not_change_the_sum(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint32_t count = (uint32_t)(random_at(seed, 0) % 40) + 1;
        struct vector_pool *pool = vector_pool_create(1);
        struct tree *tree = tree_create(count);
        struct vector *root = NULL;
        float values[64];
        for (uint32_t i = 0; i < count; i++) {
            values[i] = random_signed_unit(random_at(seed, 100 + i)) * 1e3f;
        }
        for (uint32_t i = 0; i < count; i++) {
            uint64_t place = order_row(seed, 0, i, count);
            assert_null(root);
            root = tree_put(tree, (uint32_t)place, leaf(pool, values[place]));
            root = root == NULL ? sums_run(tree, pool, seed) : root;
        }
        assert_non_null(root);
        assert_true(root->data[0] == expected_sum(values, count));
        vector_release(root);
        tree_destroy(tree);
        vector_pool_destroy(pool);
    }
}

static void half_filled_tree_is_reset_and_freed(void **state)
{
    struct vector_pool *pool = vector_pool_create(1);
    struct tree *tree = tree_create(5);
    (void)state;
    assert_null(tree_put(tree, 0, leaf(pool, 1)));
    assert_null(tree_put(tree, 1, leaf(pool, 2)));
    tree_reset(tree);
    assert_null(tree_put(tree, 3, leaf(pool, 2)));
    tree_destroy(tree);
    vector_pool_destroy(pool);
}

static void rows_of_an_epoch_are_each_there_once(void **state)
{
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 17, 64, 1000, 1437};
    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            bool seen[1437] = {false};
            for (uint64_t index = 0; index < counts[i]; index++) {
                uint64_t row = order_row(9, epoch, index, counts[i]);
                assert_true(row < counts[i]);
                assert_false(seen[row]);
                seen[row] = true;
            }
        }
    }
}

static void epochs_and_seeds_have_their_own_order(void **state)
{
    unsigned same_epoch = 0, same_seed = 0;
    (void)state;
    for (uint64_t index = 0; index < 1000; index++) {
        same_epoch += order_row(9, 0, index, 1000) == order_row(9, 1, index, 1000);
        same_seed += order_row(9, 0, index, 1000) == order_row(8, 0, index, 1000);
    }
    assert_true(same_epoch < 20 && same_seed < 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_leaves_does_not_change_the_sum),
        cmocka_unit_test(half_filled_tree_is_reset_and_freed),
        cmocka_unit_test(rows_of_an_epoch_are_each_there_once),
        cmocka_unit_test(epochs_and_seeds_have_their_own_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
