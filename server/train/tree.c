#include "server/train/tree.h"

#include <assert.h>
#include <stdlib.h>

enum node_state { NODE_EMPTY, NODE_QUEUED, NODE_RUNNING, NODE_READY, NODE_USED };

struct node {
    enum node_state state;
    struct vector *sum; /* while ready */
};

/* Nodes level by level: the leaves first, the root last. */
struct tree {
    uint32_t leaves, node_count;
    struct node *nodes;
    uint32_t *queue; /* nodes to be summed, newest first: what is in the caches goes first */
    uint32_t queue_count;
};

struct level {
    uint32_t begin, size;
};

static struct level level_above(struct level level)
{
    return (struct level){level.begin + level.size, (level.size + 1) / 2};
}

static struct level level_of(const struct tree *tree, uint32_t node)
{
    struct level level = {0, tree->leaves};
    while (node >= level.begin + level.size) {
        level = level_above(level);
    }
    return level;
}

struct tree *tree_create(uint32_t leaves)
{
    struct level level = {0, leaves};
    struct tree *tree = calloc(1, sizeof(*tree));
    if (tree == NULL) {
        return NULL;
    }
    while (level.size > 1) {
        level = level_above(level);
    }
    tree->leaves = leaves;
    tree->node_count = level.begin + 1;
    tree->nodes = calloc(tree->node_count, sizeof(*tree->nodes));
    tree->queue = calloc(tree->node_count, sizeof(*tree->queue));
    if (tree->nodes == NULL || tree->queue == NULL) {
        tree_destroy(tree);
        return NULL;
    }
    return tree;
}

void tree_reset(struct tree *tree)
{
    for (uint32_t i = 0; i < tree->node_count; i++) {
        vector_release(tree->nodes[i].sum);
        tree->nodes[i] = (struct node){NODE_EMPTY, NULL};
    }
    tree->queue_count = 0;
}

void tree_destroy(struct tree *tree)
{
    if (tree == NULL) {
        return;
    }
    if (tree->nodes != NULL) {
        tree_reset(tree);
    }
    free(tree->nodes);
    free(tree->queue);
    free(tree);
}

/* The children of a node one level up: its own index doubled, in the level below. */
static uint32_t first_child(const struct tree *tree, uint32_t node)
{
    struct level below = {0, tree->leaves};
    struct level level = level_above(below);
    while (node >= level.begin + level.size) {
        below = level;
        level = level_above(level);
    }
    return below.begin + 2 * (node - level.begin);
}

static void children_drop(struct tree *tree, uint32_t node)
{
    uint32_t child = first_child(tree, node);
    for (uint32_t i = child; i < child + 2; i++) {
        vector_release(tree->nodes[i].sum);
        tree->nodes[i] = (struct node){NODE_USED, NULL};
    }
}

struct vector *tree_put(struct tree *tree, uint32_t node, struct vector *sum)
{
    struct level level = level_of(tree, node);
    if (node >= tree->leaves && tree->nodes[node].state == NODE_RUNNING) {
        children_drop(tree, node);
    }
    for (;;) {
        uint32_t index = node - level.begin;
        uint32_t neighbour = level.begin + (index ^ 1);
        struct level above = level_above(level);
        uint32_t parent = above.begin + index / 2;
        if (level.size == 1) {
            tree->nodes[node].state = NODE_USED;
            return sum;
        }
        if ((index ^ 1) < level.size) {
            tree->nodes[node] = (struct node){NODE_READY, sum};
            if (tree->nodes[neighbour].state == NODE_READY) {
                tree->nodes[parent].state = NODE_QUEUED;
                tree->queue[tree->queue_count++] = parent;
            }
            return NULL;
        }
        tree->nodes[node].state = NODE_USED; /* no neighbour: moves up as it is */
        node = parent;
        level = above;
    }
}

bool tree_pull(struct tree *tree, uint32_t *ret_node, struct vector **ret_a, struct vector **ret_b)
{
    uint32_t node, child;
    if (tree->queue_count == 0) {
        return false;
    }
    node = tree->queue[--tree->queue_count];
    child = first_child(tree, node);
    assert(tree->nodes[child].state == NODE_READY && tree->nodes[child + 1].state == NODE_READY);
    tree->nodes[node].state = NODE_RUNNING;
    *ret_node = node;
    *ret_a = vector_hold(tree->nodes[child].sum);
    *ret_b = vector_hold(tree->nodes[child + 1].sum);
    return true;
}

void tree_return(struct tree *tree, uint32_t node)
{
    assert(tree->nodes[node].state == NODE_RUNNING);
    tree->nodes[node].state = NODE_QUEUED;
    tree->queue[tree->queue_count++] = node;
}

bool tree_is_running(const struct tree *tree, uint32_t node)
{
    return tree->nodes[node].state == NODE_RUNNING;
}
