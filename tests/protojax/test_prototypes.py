"""Prototypes against NumPy loops, with unbalanced and empty classes, and k-means on clusters that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from protojax.distances import pairwise, squared_euclidean
from protojax.prototypes import _spread_points, class_sizes, linear_classifier, prototypes, several_prototypes

POINTS = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
LABELS = np.array([2, 0, 0, 1, 2, 0, 2, 0, 4])  # sizes 4, 1, 3, 0, 1
WAY = 5

means = jax.jit(prototypes, static_argnames='way')
clusters = jax.jit(several_prototypes, static_argnames=('way', 'per_class'))


def test_by_hand():
    points = jnp.array([[1.0, 2.0], [3.0, 4.0], [10.0, 0.0], [5.0, 9.0]])
    labels = jnp.array([1, 1, 0, 1])
    np.testing.assert_allclose(prototypes(points, labels, way=2), [[10, 0], [3, 5]])
    np.testing.assert_array_equal(class_sizes(labels, way=3), [1, 3, 0])


def test_means_of_unbalanced_classes_and_origin_for_an_empty_one():
    expected = np.zeros((WAY, 4))
    for label in range(WAY):
        members = [point for point, its in zip(POINTS, LABELS, strict=True) if its == label]
        if members:
            expected[label] = sum(members) / len(members)
    np.testing.assert_allclose(means(POINTS, LABELS, way=WAY), expected, rtol=1e-5, atol=1e-6)


def test_gradient_of_a_mean_is_one_over_the_size():
    gradient = jax.jit(jax.grad(lambda points: jnp.sum(prototypes(points, LABELS, way=WAY))))(POINTS)
    expected = np.repeat(1 / np.bincount(LABELS)[LABELS][:, None], 4, 1)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_order_of_the_support_points_does_not_matter():
    order = np.random.default_rng(1).permutation(len(LABELS))
    shuffled = means(POINTS[order], LABELS[order], way=WAY)
    np.testing.assert_allclose(shuffled, means(POINTS, LABELS, way=WAY), rtol=1e-5, atol=1e-6)


def test_linear_view_gives_the_same_probabilities():
    queries = np.random.default_rng(2).normal(size=(6, 4)).astype(np.float32)
    centers = means(POINTS, LABELS, way=WAY)
    weights, biases = map(np.asarray, linear_classifier(centers))
    linear = queries @ weights.T + biases[None]
    by_distance = -np.asarray(pairwise(squared_euclidean)(queries, centers))
    np.testing.assert_allclose(softmax(linear, 1), softmax(by_distance, 1), rtol=1e-4, atol=1e-7)
    constant = np.repeat(np.sum(queries**2, 1)[:, None], WAY, 1)
    np.testing.assert_allclose(linear - by_distance, constant, rtol=1e-4, atol=1e-5)


def test_one_cluster_per_class_is_the_mean():
    found, expected = clusters(POINTS, LABELS, way=WAY, per_class=1), means(POINTS, LABELS, way=WAY)
    for label in (0, 1, 2, 4):  # all but the empty one
        np.testing.assert_allclose(found[label, 0], expected[label], rtol=1e-5, atol=1e-6)


def test_separated_clusters_are_found_and_only_their_points_move_them():
    rng = np.random.default_rng(3)
    corners = np.array([[[0, 0], [9, 0], [0, 9]], [[30, 30], [40, 30], [40, 41]]], np.float32)  # [class, cluster, D]
    groups = corners[:, :, None] + rng.normal(scale=0.3, size=(2, 3, 4, 2)).astype(np.float32)
    order = rng.permutation(24)
    points, labels = groups.reshape(-1, 2)[order], np.repeat([0, 1], 12)[order]

    def first_coordinate(points):
        centers = several_prototypes(points, labels, way=2, per_class=3)
        return centers[0, 0, 0], centers

    gradient, centers = jax.jit(jax.grad(first_coordinate, has_aux=True))(points)
    expected = groups.mean(2)
    nearest = np.argmin(np.sum((np.asarray(centers)[:, :, None] - expected[:, None]) ** 2, -1), -1)
    np.testing.assert_array_equal(np.sort(nearest), [[0, 1, 2]] * 2)  # each cluster once
    np.testing.assert_allclose(centers, np.take_along_axis(expected, nearest[:, :, None], 1), rtol=1e-5, atol=1e-5)
    of_that_cluster = order // 4 == nearest[0, 0]
    np.testing.assert_allclose(gradient, np.stack([of_that_cluster / 4, np.zeros(24)], 1), atol=1e-6)


def test_fewer_points_than_clusters():
    def total(points):
        centers = several_prototypes(points, LABELS, way=WAY, per_class=4)
        return jnp.sum(jnp.square(centers[:3])), centers

    gradient, centers = jax.jit(jax.grad(total, has_aux=True))(POINTS)
    np.testing.assert_allclose(centers[1], POINTS[LABELS == 1].repeat(4, 0), rtol=1e-6)  # its one point, four times
    assert np.isfinite(centers).all()
    assert np.isfinite(gradient).all()
    gradient = np.asarray(gradient)
    assert (gradient[:8] != 0).any(1).all()
    assert (gradient[8] == 0).all()  # of a class that the total leaves out


@pytest.mark.parametrize('offset', [10, 100, 1000])
def test_clusters_far_from_the_origin_start_at_the_same_points(offset):
    points = np.random.default_rng(5).integers(-13, 14, (12, 64)) / 1024  # exact in float32 with every offset
    members = np.arange(12) % 2 == 0
    near, far = (np.asarray(_spread_points(np.float32(points + at), members, 4)) for at in (0, offset))
    np.testing.assert_array_equal(far - offset, near)
