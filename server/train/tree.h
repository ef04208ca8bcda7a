/* tree.h: the sum of a step's gradients as a fixed pairwise tree over the micro-batch index.
 * Whatever the order in which the leaves come, the same pairs are added: the bits are the same.
 * A node without a neighbour moves up as it is.
 * Owner:   the tree owns the vectors put into it until it hands them out or is reset.
 * Thread:  under the job's lock. */
#ifndef TIDEPOOL_TRAIN_TREE_H
#define TIDEPOOL_TRAIN_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/train/vector.h"

struct tree;

struct tree *tree_create(uint32_t leaves); /* at least 1; NULL: no memory */
void tree_destroy(struct tree *tree);      /* NULL is fine */
void tree_reset(struct tree *tree);        /* empty again; its vectors are released */

/* Puts the sum of node `node` (leaves are the first ones) and takes over the caller's hold.
 * Returns the root's sum, with the hold, when the tree is complete; else NULL. */
struct vector *tree_put(struct tree *tree, uint32_t node, struct vector *sum);

/* A node whose two parts are there and that nobody has; *ret_a and *ret_b with a hold each. */
bool tree_pull(struct tree *tree, uint32_t *ret_node, struct vector **ret_a, struct vector **ret_b);
void tree_return(struct tree *tree, uint32_t node); /* pulled in vain: to be had again */
/* The node has been pulled and its sum is not there yet. */
bool tree_is_running(const struct tree *tree, uint32_t node);

#endif
