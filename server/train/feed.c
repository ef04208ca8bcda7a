#include "server/train/feed.h"

#include <stdlib.h>

#define NO_SEQUENCE UINT64_MAX

struct place {
    uint64_t sequence;
    struct vector *rows; /* NULL while a loader reads */
};

struct feed {
    struct feed_config config;
    struct vector_pool *pool;
    uint64_t oldest; /* all before are done */
    struct place *places;
};

struct feed *feed_create(const struct feed_config *config)
{
    struct feed *feed = calloc(1, sizeof(*feed));
    if (feed == NULL) {
        return NULL;
    }
    feed->config = *config;
    feed->oldest = config->begin;
    feed->places = calloc(config->ahead, sizeof(*feed->places));
    feed->pool = vector_pool_create((size_t)config->rows * (config->inputs + 1));
    if (feed->places == NULL || feed->pool == NULL) {
        feed_destroy(feed);
        return NULL;
    }
    for (uint32_t i = 0; i < config->ahead; i++) {
        feed->places[i].sequence = NO_SEQUENCE;
    }
    return feed;
}

void feed_destroy(struct feed *feed)
{
    if (feed == NULL) {
        return;
    }
    for (uint32_t i = 0; feed->places != NULL && i < feed->config.ahead; i++) {
        vector_release(feed->places[i].rows);
    }
    vector_pool_destroy(feed->pool);
    free(feed->places);
    free(feed);
}

static struct place *place_of(const struct feed *feed, uint64_t sequence)
{
    return &feed->places[sequence % feed->config.ahead];
}

int feed_claim(struct feed *feed, uint64_t *ret_sequence, struct vector **ret_rows)
{
    for (uint32_t i = 0; i < feed->config.ahead; i++) {
        uint64_t sequence = feed->oldest + i;
        struct place *place = place_of(feed, sequence);
        if (sequence >= feed->config.end) {
            return 0;
        }
        if (place->sequence == sequence) {
            continue;
        }
        *ret_rows = vector_take(feed->pool);
        if (*ret_rows == NULL) {
            return -1;
        }
        place->sequence = sequence;
        *ret_sequence = sequence;
        return 1;
    }
    return 0;
}

int feed_read(const struct feed *feed, uint64_t sequence, struct vector *rows, struct error *error)
{
    return dataset_train_read(feed->config.dataset, sequence * feed->config.rows, feed->config.rows,
                              rows->data, feed_labels(feed, rows), error);
}

void feed_fill(struct feed *feed, uint64_t sequence, struct vector *rows)
{
    place_of(feed, sequence)->rows = rows;
}

struct vector *feed_hold(struct feed *feed, uint64_t sequence)
{
    struct place *place = place_of(feed, sequence);
    return place->sequence == sequence && place->rows != NULL ? vector_hold(place->rows) : NULL;
}

void feed_advance(struct feed *feed, uint64_t sequence)
{
    for (; feed->oldest < sequence; feed->oldest++) {
        struct place *place = place_of(feed, feed->oldest);
        vector_release(place->rows);
        *place = (struct place){.sequence = NO_SEQUENCE};
    }
}

struct vector *feed_take(struct feed *feed)
{
    return vector_take(feed->pool);
}

const float *feed_inputs(const struct vector *rows)
{
    return rows->data;
}

uint32_t *feed_labels(const struct feed *feed, const struct vector *rows)
{
    return (uint32_t *)(void *)(rows->data + (size_t)feed->config.rows * feed->config.inputs);
}
